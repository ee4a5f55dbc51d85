/* The same as classify.c, in C++17.
 *
 *     c++ -std=c++17 classify.cpp $(pkg-config --cflags --libs weft) -o classify */
#include <weft/weft.hpp>

#include <cstdio>

static void classify(weft::Session &session)
{
    std::uint32_t n;
    const weft_tensor_info *input = weft_inputs(session.get(), &n);
    std::vector<std::int64_t> dims(input->dim, input->dim + input->rank);
    dims[0] = 1;
    std::int64_t row = 1;
    for (std::int64_t dim : dims)
        row *= dim;
    if (n != 1 || row <= 0)
        throw std::runtime_error("the model is no classifier of images");
    std::vector<float> image(static_cast<std::size_t>(row));
    while (std::fread(image.data(), sizeof(float), image.size(), stdin) == image.size()) {
        weft::Array out = session.run({weft::array(image.data(), dims)})[0];
        for (std::int64_t i = 0; i < out.size(); i++)
            std::printf("%s%.9g", i > 0 ? " " : "", static_cast<double>(out.data<float>()[i]));
        std::putchar('\n');
    }
}

int main(int argc, char **argv)
try {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s BUNDLE.weft MODEL < images.f32\n", argv[0]);
        return 2;
    }
    weft::Bundle bundle(argv[1]);
    weft::Session session(bundle, std::string(argv[2]));
    classify(session);
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return 1;
}
