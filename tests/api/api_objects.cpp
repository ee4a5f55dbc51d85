/* weft.hpp on the bundle of the digits (argv[1]): owners move, errors are exceptions, several models,
 * asynchronous runs. */
#include <weft/weft.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    std::fprintf(stderr, "FAILED: %s\n", what);
    std::exit(1);
}

template <typename Call> static std::string message(Call call)
{
    try {
        call();
    } catch (const weft::Error &e) {
        return e.status == WEFT_OK ? "" : e.what();
    } catch (const std::invalid_argument &e) {
        return e.what();
    }
    return "";
}

int main(int argc, char **argv)
{
    need(argc == 2, "usage");
    weft_options options = {};
    options.threads = 1;
    weft::Bundle first(argv[1], options), bundle(std::move(first));
    need(!first.get() && bundle.models().size() == 4, "a bundle moves");
    need(bundle.find("parity") && !bundle.find("none"), "find");
    std::vector<float> image(3 * 64, 1.0f), scores(30);
    weft::Array in = weft::array(image.data(), {3, 1, 8, 8});
    weft::Session digits(bundle, std::string("digits"));
    weft::Array borrowed = digits.run({in}).at(0);
    need(borrowed.dims() == std::vector<std::int64_t>{3, 10}, "dims of the output");
    std::vector<weft::Array> own{weft::array(scores.data(), {3, 10})};
    std::vector<float> want(borrowed.data<float>(), borrowed.data<float>() + 30);
    digits.run({in}, own);
    need(scores == want, "a buffer of the caller");
    bool heard = false;
    digits.run_async({in}, [&](const weft_array *out, std::uint32_t n, const weft_error *error) {
        heard = n == 1 && !error && std::memcmp(out->data, want.data(), 30 * sizeof(float)) == 0;
    });
    digits.wait();
    need(heard, "an asynchronous run");
    weft::Session both(bundle, std::vector<std::string>{"parity", "digits"});
    need(std::memcmp(both.run({in, in}).at(1).data<float>(), want.data(), 30 * sizeof(float)) == 0,
         "several models");
    need(message([&] { weft::Session(bundle, std::string("none")); }).find("none") !=
             std::string::npos, "an unknown model");
    need(message([&] { digits.run({weft::array(image.data(), {3, 1, 8, 7})}); }) != "", "wrong dims");
    need(message([&] { digits.run({}); }) != "", "no input");
    need(message([&] { borrowed.data<double>(); }).find("f32") != std::string::npos, "wrong type");
    need(message([&] { weft::Bundle none("no-such-file.weft"); }) != "", "no file");
    need(message([&] { weft::Bundle none("weft", 4); }) != "", "no bundle");
}
