/* SPDX-License-Identifier: Apache-2.0
 *
 * quern for C++17: contexts, deployments, requests and tensors as objects that own their handles, and failures as exceptions. Nothing but this header
 * and quern.h; link with -lquern or -lquern_rt. Functions are those of quern.h, which documents them, threads and callbacks included.
 *
 *     quernpp::Context context;
 *     quernpp::Deployment net(context, "outputs/MediapipeNet");
 *     quernpp::Request request(net);
 *     quernpp::Tensor x = request.input(0, {1, 3, 224, 224});
 *     std::copy(pixels.begin(), pixels.end(), x.data<float>());
 *     request.start();
 *     request.wait();
 *     quernpp::Tensor y = request.output(0);
 */
#ifndef QUERN_HPP
#define QUERN_HPP

#include "quern.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace quernpp { /* quern is the type of C contexts */

/* A failure of the library: the kind, and the problem with its place and a way out. */
class Error : public std::runtime_error {
public:
    Error(quern_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
    quern_status status() const noexcept { return status_; }

private:
    quern_status status_;
};

template <class T> constexpr quern_dtype dtype_of()
{
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, float>) return QUERN_F32;
    else if constexpr (std::is_same_v<U, double>) return QUERN_F64;
    else if constexpr (std::is_same_v<U, bool>) return QUERN_BOOL;
    else if constexpr (std::is_same_v<U, std::int8_t>) return QUERN_I8;
    else if constexpr (std::is_same_v<U, std::uint8_t>) return QUERN_U8;
    else if constexpr (std::is_same_v<U, std::int16_t>) return QUERN_I16;
    else if constexpr (std::is_same_v<U, std::uint16_t>) return QUERN_U16;
    else if constexpr (std::is_same_v<U, std::int32_t>) return QUERN_I32;
    else if constexpr (std::is_same_v<U, std::uint32_t>) return QUERN_U32;
    else if constexpr (std::is_same_v<U, std::int64_t>) return QUERN_I64;
    else {
        static_assert(std::is_same_v<U, std::uint64_t>, "no element type of tensors: use data() without a type");
        return QUERN_U64;
    }
}

using Shape = std::vector<std::int64_t>;

/* Settings, messages and the last error; for one thread at a time. It must outlive what is made from it. */
class Context {
public:
    Context() : Context(nullptr) {}
    explicit Context(const quern_opts *o) : q_(quern_open(o), quern_close)
    {
        if (!q_) throw Error(QUERN_SYSTEM, "not enough memory for a context");
    }
    quern *get() const noexcept { return q_.get(); }
    void stop() noexcept { quern_stop(q_.get()); }
    void resume() noexcept { quern_resume(q_.get()); }
    void check(quern_status s) const
    {
        if (s != QUERN_OK) throw Error(s, quern_error(q_.get()));
    }

private:
    std::unique_ptr<quern, void (*)(quern *)> q_;
};

/* A tensor of its own memory, or a view of a request's or the caller's. */
class Tensor {
public:
    Tensor(const Context &c, quern_dtype type, const Shape &shape, const void *data = nullptr) : t_(nullptr, quern_tensor_free)
    {
        quern_tensor *t = nullptr;
        c.check(quern_tensor_new(c.get(), type, static_cast<int>(shape.size()), shape.data(), data, &t));
        t_.reset(t);
    }
    /* Uses the caller's memory, which must outlive the tensor. */
    template <class T> static Tensor view(const Context &c, T *data, const Shape &shape)
    {
        quern_tensor *t = nullptr;
        c.check(quern_tensor_view(c.get(), dtype_of<T>(), static_cast<int>(shape.size()), shape.data(), data, &t));
        return Tensor(t, true);
    }
    Tensor(quern_tensor *t, bool owns) : t_(t, owns ? quern_tensor_free : keep) {}
    quern_tensor *get() const noexcept { return t_.get(); }
    quern_dtype dtype() const noexcept { return quern_tensor_dtype(get()); }
    std::int64_t count() const noexcept { return quern_tensor_count(get()); }
    Shape shape() const { return Shape(quern_tensor_dims(get()), quern_tensor_dims(get()) + quern_tensor_rank(get())); }
    void *data() const noexcept { return quern_tensor_data(get()); }
    template <class T> T *data() const
    {
        if (dtype() != dtype_of<T>()) throw Error(QUERN_USAGE, "the tensor has another element type");
        return static_cast<T *>(data());
    }
    template <class T> T *begin() const { return data<T>(); }
    template <class T> T *end() const { return data<T>() + count(); }

private:
    static void keep(quern_tensor *) {}
    std::unique_ptr<quern_tensor, void (*)(quern_tensor *)> t_;
};

struct DeploymentOptions {
    int threads = 0;
    bool fallback = false;
    std::vector<std::string> devices; /* "INTELGPU:0=*llvmpipe*" */
    bool require_signature = false;
    std::string trusted;
    int profile = 0;
    bool only_list = false;
};

/* A network divided over devices, loaded. Requests keep its memory, but it must be open while they run. */
class Deployment {
public:
    Deployment(const Context &c, const std::string &path, const DeploymentOptions &o = {}) : c_(&c), d_(nullptr, quern_deployment_close)
    {
        std::vector<const char *> devices;
        for (const std::string &x : o.devices) devices.push_back(x.c_str());
        devices.push_back(nullptr);
        quern_deployment_opts x{};
        x.size = sizeof x;
        x.threads = o.threads, x.fallback = o.fallback, x.devices = devices.data(), x.require_signature = o.require_signature;
        x.trusted = o.trusted.empty() ? nullptr : o.trusted.c_str(), x.profile = o.profile, x.only_list = o.only_list;
        quern_deployment *d = nullptr;
        c.check(quern_deployment_open(c.get(), path.c_str(), &x, &d));
        d_.reset(d);
    }
    quern_deployment *get() const noexcept { return d_.get(); }
    const Context &context() const noexcept { return *c_; }
    std::string name() const { return quern_deployment_name(get()); }
    int inputs() const noexcept { return quern_deployment_inputs(get()); }
    int outputs() const noexcept { return quern_deployment_outputs(get()); }
    struct quern_deployment_value input(int k) const { return value(0, k); }
    struct quern_deployment_value output(int k) const { return value(1, k); }
    std::vector<std::string> devices() const
    {
        std::vector<std::string> v;
        for (int k = 0; const char *name = quern_deployment_device(get(), k); k++) v.emplace_back(name);
        return v;
    }
    std::vector<quern_subgraph> subgraphs() const
    {
        std::vector<quern_subgraph> v;
        quern_subgraph s{};
        s.size = sizeof s;
        for (int k = 0; quern_deployment_subgraph(get(), k, &s); k++) v.push_back(s);
        return v;
    }
    void trace(const std::string &path) const { c_->check(quern_deployment_trace(get(), path.c_str())); }

private:
    struct quern_deployment_value value(int is_output, int k) const
    {
        struct quern_deployment_value v{};
        v.size = sizeof v;
        c_->check(quern_deployment_value(get(), is_output, k, &v));
        return v;
    }
    const Context *c_;
    std::unique_ptr<quern_deployment, void (*)(quern_deployment *)> d_;
};

/* A run of a deployment. A Request that is destroyed while it runs is cancelled. */
class Request {
public:
    /* Called when the request is done, by a thread of the library; error is NULL after a success. It may start this request or others again, but not wait.
     * An exception that leaves it ends the program. */
    using Done = std::function<void(Request &, const Error *)>;

    explicit Request(const Deployment &d) : r_(nullptr, quern_request_destroy)
    {
        quern_request *r = nullptr;
        d.context().check(quern_request_create(d.get(), &r));
        r_.reset(r);
    }
    Request(Request &&) = delete; /* callbacks refer to it */
    Request &operator=(Request &&) = delete;
    quern_request *get() const noexcept { return r_.get(); }
    /* The memory of input k, to be filled. Without a shape: the network's, if it is fixed. */
    Tensor input(int k, const Shape &shape) { return map_input(k, static_cast<int>(shape.size()), shape.data()); }
    Tensor input(int k) { return map_input(k, 0, nullptr); }
    /* The caller's tensor instead, which must stay valid until the last run. */
    void set_input(int k, const Tensor &t) { check(quern_request_set_input(get(), k, t.get())); }
    Tensor output(int k) /* until the next start */
    {
        quern_tensor *t = nullptr;
        check(quern_request_output(get(), k, &t));
        return Tensor(t, false);
    }
    void on_done(Done done)
    {
        done_ = std::move(done);
        quern_request_on_done(get(), done_ ? call : nullptr, this);
    }
    void start() { check(quern_request_start(get())); }
    /* true: done; false: the time was up (OptimaV2's wait returned true for that). Throws the request's failure. */
    bool wait(double seconds = -1)
    {
        int done = 0;
        check(quern_request_wait(get(), seconds, &done));
        return done != 0;
    }
    void run() { check(quern_request_run(get())); }
    void cancel() noexcept { quern_request_cancel(get()); }

private:
    static void call(void *user, quern_request *, quern_status status, const char *error) noexcept
    {
        Request &r = *static_cast<Request *>(user);
        if (status == QUERN_OK) return r.done_(r, nullptr);
        const Error e(status, error);
        r.done_(r, &e);
    }
    Tensor map_input(int k, int rank, const std::int64_t *dim)
    {
        quern_tensor *t = nullptr;
        check(quern_request_input(get(), k, rank, dim, &t));
        return Tensor(t, false);
    }
    void check(quern_status s) const
    {
        if (s != QUERN_OK) throw Error(s, quern_request_error(get()));
    }
    Done done_; /* outlives the handle, whose destruction waits for a callback */
    std::unique_ptr<quern_request, void (*)(quern_request *)> r_;
};

} // namespace quernpp

#endif
