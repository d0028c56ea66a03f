// SPDX-License-Identifier: Apache-2.0
//
// requests DEPLOYMENT: the C++ interface on a deployment of y = Relu(x) + 1 over x (N), as test/requests.sh makes it. Fails with a message.
#include "quern.hpp"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>

#define CHECK(what) \
    do { \
        if (!(what)) throw std::runtime_error("line " + std::to_string(__LINE__) + ": " #what); \
    } while (0)

static void fill(quernpp::Request &r, std::int64_t n, float from)
{
    quernpp::Tensor x = r.input(0, {n});
    for (std::int64_t i = 0; i < n; i++) x.data<float>()[i] = from - static_cast<float>(i);
}

static void compare(quernpp::Request &r, std::int64_t n, float from)
{
    quernpp::Tensor y = r.output(0);
    CHECK(y.shape() == quernpp::Shape{n} && y.dtype() == QUERN_F32);
    for (std::int64_t i = 0; i < n; i++) CHECK(y.data<float>()[i] == std::fmax(from - static_cast<float>(i), 0.0f) + 1);
}

static void lists(const quernpp::Deployment &d)
{
    CHECK(d.name() == "net" && d.inputs() == 1 && d.outputs() == 1);
    CHECK(std::strcmp(d.input(0).origin, "x") == 0 && d.input(0).rank == 1 && d.input(0).dim[0] == -1 && std::strcmp(d.input(0).sym[0], "N") == 0);
    CHECK(d.devices() == (std::vector<std::string>{"X64:0", "X64:1"}));
    CHECK(d.subgraphs().size() == 2 && std::strcmp(d.subgraphs()[1].device, "X64:1") == 0 && d.subgraphs()[0].operators == 1);
}

/* Callbacks start their request again, ten times each. */
static void callbacks(const quernpp::Deployment &d)
{
    constexpr int n = 3;
    std::atomic<int> runs{0};
    std::vector<std::unique_ptr<quernpp::Request>> r;
    std::vector<int> left(n, 10);
    for (int k = 0; k < n; k++) {
        r.push_back(std::make_unique<quernpp::Request>(d));
        fill(*r[k], 5 + k, 3);
        r[k]->on_done([&runs, &left, k](quernpp::Request &own, const quernpp::Error *e) {
            runs++;
            if (!e && --left[k] > 0) own.start();
        });
        r[k]->start();
    }
    for (int k = 0; k < n; k++) {
        while (!r[k]->wait(0.001)) {}
        compare(*r[k], 5 + k, 3);
    }
    CHECK(runs == 30);
}

template <class F> static void fails(quern_status status, const char *why, F f)
{
    try {
        f();
    } catch (const quernpp::Error &e) {
        if (e.status() == status && std::strstr(e.what(), why)) return;
        throw std::runtime_error(std::string("expected '") + why + "': " + e.what());
    }
    throw std::runtime_error(std::string("no failure: ") + why);
}

static void failures(const quernpp::Context &c, const quernpp::Deployment &d)
{
    quernpp::Request r(d);
    fails(QUERN_SYSTEM, "cannot open", [&] { quernpp::Deployment(c, "/nonexistent"); });
    fails(QUERN_USAGE, "was not given", [&] { r.start(); });
    fails(QUERN_USAGE, "has rank 2", [&] { r.input(0, {1, 2}); });
    fails(QUERN_USAGE, "not fixed", [&] { r.input(0); });
    fails(QUERN_USAGE, "another element type", [&] { r.input(0, {1}).data<int>(); });
    fails(QUERN_USAGE, "no outputs", [&] { r.output(0); });
    fails(QUERN_USAGE, "INSTANCE=DEVICE", [&] { quernpp::Deployment(c, "net", {0, false, {"X64:0"}, false, "", 0, false}); });
}

int main(int argc, char **argv)
try {
    CHECK(argc == 2);
    quernpp::Context c;
    quernpp::DeploymentOptions o;
    o.threads = 2, o.profile = 1;
    quernpp::Deployment d(c, argv[1], o);
    lists(d);
    callbacks(d);
    failures(c, d);
    quernpp::Request r(d);
    std::vector<float> mine{1, -1, 2};
    quernpp::Tensor x = quernpp::Tensor::view(c, mine.data(), {3});
    r.set_input(0, x);
    r.run();
    CHECK(r.output(0).data<float>()[0] == 2 && r.output(0).data<float>()[1] == 1 && *(r.output(0).end<float>() - 1) == 3);
    d.trace("trace.json");
    std::puts("ok");
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
