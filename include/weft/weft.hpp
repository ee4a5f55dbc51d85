/* Weft for C++17: owners of the handles of weft.h, and exceptions in place of status values.
 *
 *     weft::Bundle bundle("digits.weft");
 *     weft::Session session(bundle, "digits");
 *     std::vector<float> image(64);
 *     auto out = session.run({weft::array(image.data(), {1, 1, 8, 8})});
 *     const float *logits = out[0].data<float>();
 *
 * Handles move and do not copy. The thread rules are those of weft.h. */
#ifndef WEFT_WEFT_HPP
#define WEFT_WEFT_HPP

#include "weft.h"

#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft {

class Error : public std::runtime_error {
public:
    explicit Error(const weft_error &error) : std::runtime_error(error.text), status(error.status) {}
    weft_status status;
};

/* Element type of a C++ type. */
template <typename T> struct TypeOf;
#define WEFT_TYPE_OF(type, value) \
    template <> struct TypeOf<type> { static constexpr weft_type id = value; };
WEFT_TYPE_OF(float, WEFT_F32)
WEFT_TYPE_OF(double, WEFT_F64)
WEFT_TYPE_OF(std::int8_t, WEFT_I8)
WEFT_TYPE_OF(std::int16_t, WEFT_I16)
WEFT_TYPE_OF(std::int32_t, WEFT_I32)
WEFT_TYPE_OF(std::int64_t, WEFT_I64)
WEFT_TYPE_OF(std::uint8_t, WEFT_U8)
WEFT_TYPE_OF(std::uint16_t, WEFT_U16)
WEFT_TYPE_OF(std::uint32_t, WEFT_U32)
WEFT_TYPE_OF(std::uint64_t, WEFT_U64)
WEFT_TYPE_OF(bool, WEFT_BOOL)
#undef WEFT_TYPE_OF

/* A tensor in memory of the caller or of a session. */
struct Array : weft_array {
    Array() : weft_array{} {}

    template <typename T> T *data() const
    {
        if (TypeOf<T>::id != type)
            throw std::invalid_argument(std::string("the tensor has type ") + weft_name_of(type));
        return static_cast<T *>(weft_array::data);
    }
    std::vector<std::int64_t> dims() const { return {dim, dim + rank}; }
    std::int64_t size() const
    {
        std::int64_t n = 1;
        for (std::int32_t i = 0; i < rank; i++)
            n *= dim[i];
        return n;
    }
};

/* A tensor of these dims at `data`; as an input it is only read. */
template <typename T> Array array(const T *data, const std::vector<std::int64_t> &dims)
{
    Array a;
    if (dims.size() > WEFT_DIMS_MAX)
        throw std::invalid_argument("a tensor has at most 8 dims");
    a.type = TypeOf<T>::id;
    a.rank = static_cast<std::int32_t>(dims.size());
    for (std::size_t i = 0; i < dims.size(); i++)
        a.dim[i] = dims[i];
    a.weft_array::data = const_cast<T *>(data);
    a.bytes = static_cast<std::size_t>(a.size()) * sizeof(T);
    return a;
}

class Bundle {
public:
    explicit Bundle(const std::string &path, const weft_options &options = {})
    {
        weft_error error;
        take(weft_open(path.c_str(), &options, &error), error);
    }
    Bundle(const void *bytes, std::size_t len, const weft_options &options = {})
    {
        weft_error error;
        take(weft_open_memory(bytes, len, &options, &error), error);
    }

    std::vector<const weft_model_info *> models() const
    {
        std::vector<const weft_model_info *> all;
        for (std::uint32_t i = 0; const weft_model_info *info = weft_describe(get(), i); i++)
            all.push_back(info);
        return all;
    }
    const weft_model_info *find(const std::string &model) const
    {
        return weft_find(get(), model.c_str());
    }
    weft_bundle *get() const { return handle.get(); }

private:
    void take(weft_bundle *bundle, const weft_error &error)
    {
        if (!bundle)
            throw Error(error);
        handle.reset(bundle);
    }
    struct Close {
        void operator()(weft_bundle *bundle) const { weft_close(bundle); }
    };
    std::unique_ptr<weft_bundle, Close> handle;
};

class Session {
public:
    Session(const Bundle &bundle, const std::string &model)
    {
        weft_error error;
        take(weft_start(bundle.get(), model.c_str(), &error), error);
    }
    /* Several models that run together: weft_start_joint. */
    Session(const Bundle &bundle, const std::vector<std::string> &models)
    {
        weft_error error;
        std::vector<const char *> names;
        for (const std::string &name : models)
            names.push_back(name.c_str());
        take(weft_start_joint(bundle.get(), names.data(), static_cast<std::uint32_t>(names.size()),
                              &error),
             error);
    }

    /* Outputs in memory of the session, valid until its next run. */
    std::vector<Array> run(const std::vector<Array> &in)
    {
        std::uint32_t n = 0;
        weft_outputs(get(), &n);
        std::vector<Array> out(n);
        run(in, out);
        return out;
    }
    /* Outputs with data are written there. */
    void run(const std::vector<Array> &in, std::vector<Array> &out)
    {
        std::vector<weft_array> a(in.begin(), in.end()), b(out.begin(), out.end());
        weft_error error;
        weft_status status = weft_run(get(), a.data(), static_cast<std::uint32_t>(a.size()), b.data(),
                                      static_cast<std::uint32_t>(b.size()), &error);
        for (std::size_t i = 0; i < b.size(); i++)
            static_cast<weft_array &>(out[i]) = b[i];
        if (status != WEFT_OK)
            throw Error(error);
    }
    /* `done` gets the outputs or, after a failure, an error; it must not throw. */
    using Done = std::function<void(const weft_array *out, std::uint32_t n, const weft_error *error)>;
    void run_async(const std::vector<Array> &in, Done done)
    {
        std::uint32_t n = 0;
        weft_outputs(get(), &n);
        std::vector<weft_array> a(in.begin(), in.end()), b(n);
        auto owned = std::make_unique<Done>(std::move(done));
        weft_error error;
        if (weft_run_async(get(), a.data(), static_cast<std::uint32_t>(a.size()), b.data(), n, call,
                           owned.get(), &error) != WEFT_OK)
            throw Error(error);
        owned.release(); /* `call` deletes it */
    }
    void wait() { weft_wait(get()); }
    weft_session *get() const { return handle.get(); }

private:
    static void call(void *user, const weft_array *out, std::uint32_t n, const weft_error *error)
    {
        std::unique_ptr<Done> done(static_cast<Done *>(user));
        (*done)(out, n, error);
    }
    void take(weft_session *session, const weft_error &error)
    {
        if (!session)
            throw Error(error);
        handle.reset(session);
    }
    struct Stop {
        void operator()(weft_session *session) const { weft_stop(session); }
    };
    std::unique_ptr<weft_session, Stop> handle;
};

} // namespace weft

#endif
