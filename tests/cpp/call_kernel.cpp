// Serves one layer from C++: finds the kernel, loads its cubin with the driver API, packs random weights, launches, and
// compares the result with the same sums on the CPU.
//
//     nvcc -std=c++17 -I generated/nvidia-h200 tests/cpp/call_kernel.cpp -lcuda -o call_kernel
//     ./call_kernel generated/nvidia-h200 qwen3.5-35b 4
//
// Exit codes: 0 the result is right, 1 it is wrong or something failed, 2 usage.
#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "monomoe_kernels.h"

namespace {

constexpr double kLeastCosine = 0.998;  // the kernel computes in e4m3, the check does not

[[noreturn]] void fail(const std::string& message) {
    std::fprintf(stderr, "call_kernel: %s\n", message.c_str());
    std::exit(1);
}

void check(CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    const char* text = nullptr;
    cuGetErrorString(result, &text);
    fail(std::string(call) + ": " + (text ? text : "unknown error"));
}
#define CHECK(call) check(call, #call)

// -- numbers

float from_e4m3(std::uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float size = exponent ? std::ldexp(8.0f + mantissa, exponent - 10) : std::ldexp(float(mantissa), -9);
    return code & 0x80 ? -size : size;
}

const std::vector<float>& e4m3_values() {
    static const std::vector<float> values = [] {
        std::vector<float> all(256);
        for (int code = 0; code < 256; ++code) all[code] = from_e4m3(static_cast<std::uint8_t>(code));
        return all;
    }();
    return values;
}

std::uint16_t to_bf16(float value) {  // to nearest, ties to even; finite values only
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bf16(std::uint16_t code) {
    const std::uint32_t bits = std::uint32_t{code} << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// -- device memory, freed with the context when the program ends

CUdeviceptr zeroed(std::size_t bytes) {
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, bytes));
    CHECK(cuMemsetD8(memory, 0, bytes));
    return memory;
}

template <typename T>
CUdeviceptr uploaded(const std::vector<T>& values) {
    CUdeviceptr memory = zeroed(values.size() * sizeof(T));
    CHECK(cuMemcpyHtoD(memory, values.data(), values.size() * sizeof(T)));
    return memory;
}

// -- the layer on the CPU

// One expert in checkpoint layout: codes [rows, columns], scales per 128 x 128.
struct Matrix {
    std::uint32_t rows, columns;
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;

    Matrix(std::uint32_t rows, std::uint32_t columns, std::mt19937& random)
        : rows(rows), columns(columns), codes(std::size_t{rows} * columns), scales(rows / 128 * (columns / 128)) {
        for (auto& code : codes) code = static_cast<std::uint8_t>((random() & 0x80) | random() % 0x40);  // up to 1.875
        for (auto& scale : scales) scale = 0.02f + 0.02f * static_cast<float>(random() % 1000) / 1000;
    }

    std::vector<float> times(const std::vector<float>& x) const {
        const std::vector<float>& value = e4m3_values();
        std::vector<float> y(rows);
        for (std::uint32_t r = 0; r < rows; ++r) {
            double sum = 0;
            for (std::uint32_t c = 0; c < columns; ++c) {
                const float scale = scales[r / 128 * (columns / 128) + c / 128];
                sum += double{value[codes[std::size_t{r} * columns + c]]} * scale * x[c];
            }
            y[r] = static_cast<float>(sum);
        }
        return y;
    }
};

struct Expert {
    Matrix w13, w2;
    Expert(const monomoe::Shape& s, std::mt19937& random)
        : w13(2 * s.intermediate, s.hidden, random), w2(s.hidden, s.intermediate, random) {}

    std::vector<float> forward(const std::vector<float>& x) const {
        const std::vector<float> up = w13.times(x);
        std::vector<float> h(up.size() / 2);
        for (std::size_t i = 0; i < h.size(); ++i) h[i] = up[i] / (1 + std::exp(-up[i])) * up[h.size() + i];
        return w2.times(h);
    }
};

// The experts of a token and their weights: a softmax, its top_k, renormalized if the shape says so.
std::vector<std::pair<std::uint32_t, float>> route(const monomoe::Shape& s, const float* logits) {
    std::vector<std::uint32_t> order(s.experts);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
    const float* end = logits + s.experts;
    const double all = std::accumulate(logits, end, 0.0, [](double sum, float l) { return sum + std::exp(l); });
    std::vector<std::pair<std::uint32_t, float>> chosen;
    double sum = 0;
    for (std::uint32_t k = 0; k < s.top_k; ++k) {
        const double share = std::exp(logits[order[k]]) / all;
        sum += share;
        chosen.emplace_back(order[k], static_cast<float>(share));
    }
    for (auto& [expert, weight] : chosen) {
        weight *= s.routed_scaling_factor / (s.renormalize ? static_cast<float>(sum) : 1.0f);
    }
    return chosen;
}

// -- the kernel

using Offset = std::size_t (*)(const monomoe::Shape&, std::uint32_t expert, std::uint32_t row, std::uint32_t column);

void upload_packed(
    CUdeviceptr all, Offset offset, const monomoe::Shape& s, std::uint32_t expert, const Matrix& matrix) {
    std::vector<std::uint8_t> packed(matrix.codes.size());
    for (std::uint32_t r = 0; r < matrix.rows; ++r) {
        for (std::uint32_t c = 0; c < matrix.columns; ++c) {
            packed[offset(s, 0, r, c)] = matrix.codes[std::size_t{r} * matrix.columns + c];
        }
    }
    CHECK(cuMemcpyHtoD(all + offset(s, expert, 0, 0), packed.data(), packed.size()));
}

CUfunction load(const monomoe::Kernel& kernel, const std::string& folder, CUdevice device) {
    int major = 0, minor = 0, sms = 0, resident = 0;
    CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    CHECK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    const monomoe::Gpu found = {"", unsigned(sms), unsigned(major), unsigned(minor), 0};
    const monomoe::Gpu& gpu = monomoe::kGpu;
    const bool capable = found.compute_major == gpu.compute_major && found.compute_minor == gpu.compute_minor;
    if (!capable || found.sms != gpu.sms) {
        fail(std::string("the kernels are for ") + gpu.name + ", found compute capability " +
             std::to_string(major) + "." + std::to_string(minor) + " and " + std::to_string(sms) + " SMs");
    }
    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoad(&module, (folder + "/" + kernel.file).c_str()));
    CHECK(cuModuleGetFunction(&function, module, kernel.name));
    const int shared = static_cast<int>(kernel.shared_bytes), threads = static_cast<int>(kernel.threads);
    CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared));
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function, threads, kernel.shared_bytes));
    if (resident < 1 || static_cast<int>(kernel.grid) > sms) fail("the grid cannot be resident as a whole");
    int cluster = 0, clusters = 0;
    CHECK(cuFuncGetAttribute(&cluster, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, function));
    if (cluster > 1) {
        CUlaunchAttribute size = {};
        size.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        size.value.clusterDim = {unsigned(cluster), 1, 1};
        CUlaunchConfig config = {};
        config.gridDimX = kernel.grid;
        config.blockDimX = kernel.threads;
        config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
        config.sharedMemBytes = kernel.shared_bytes;
        config.attrs = &size;
        config.numAttrs = 1;
        CHECK(cuOccupancyMaxActiveClusters(&clusters, function, &config));
        if (static_cast<int>(kernel.grid) > clusters * cluster) fail("the clusters cannot be resident as a whole");
    }
    return function;
}

void launch(const monomoe::Kernel& kernel, CUfunction function, monomoe::Arguments arguments, CUstream stream) {
    std::size_t size = sizeof arguments;
    void* buffer[] = {
        CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CHECK(cuLaunchKernel(
        function, kernel.grid, 1, 1, kernel.threads, 1, 1, kernel.shared_bytes, stream, nullptr, buffer));
}

}  // namespace

int main(int count, char** words) {
    const std::uint32_t tokens = count == 4 ? static_cast<std::uint32_t>(std::atoi(words[3])) : 0;
    if (tokens == 0) {
        std::fprintf(stderr, "usage: %s FOLDER MODEL TOKENS\n", words[0]);
        return 2;
    }
    const monomoe::Entry* entry = monomoe::find(words[2], tokens);
    if (!entry) fail(std::string("no kernel for ") + words[2] + " with " + words[3] + " tokens");
    const monomoe::Kernel& kernel = monomoe::kernel_of(*entry);
    const monomoe::Shape& shape = monomoe::shape_of(kernel);
    if (shape.scoring != monomoe::Scoring::kSoftmax || shape.expert_bias || shape.n_group > 1 ||
        shape.logits != monomoe::Number::kFloat32) {
        fail(std::string("this example routes by a plain softmax of fp32 logits, unlike ") + shape.name);
    }

    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    const CUfunction function = load(kernel, words[1], device);

    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> x(std::size_t{tokens} * shape.hidden);
    std::vector<float> logits(std::size_t{tokens} * shape.experts);
    for (auto& value : x) value = to_bf16(normal(random));
    for (auto& value : logits) value = normal(random);

    // Only the experts that some token chooses get weights.
    std::map<std::uint32_t, Expert> experts;
    for (std::uint32_t t = 0; t < tokens; ++t) {
        for (const auto& [expert, weight] : route(shape, &logits[std::size_t{t} * shape.experts])) {
            if (!experts.count(expert)) experts.emplace(expert, Expert(shape, random));
        }
    }
    const std::size_t scales = std::size_t{2} * shape.intermediate / 128 * (shape.hidden / 128);
    std::vector<float> w13_scale(shape.experts * scales), w2_scale(shape.experts * scales / 2);
    const CUdeviceptr w13 = zeroed(monomoe::w13_bytes(shape)), w2 = zeroed(monomoe::w2_bytes(shape));
    for (const auto& [e, expert] : experts) {
        upload_packed(w13, monomoe::w13_offset, shape, e, expert.w13);
        upload_packed(w2, monomoe::w2_offset, shape, e, expert.w2);
        std::copy(expert.w13.scales.begin(), expert.w13.scales.end(), w13_scale.begin() + e * scales);
        std::copy(expert.w2.scales.begin(), expert.w2.scales.end(), w2_scale.begin() + e * (scales / 2));
    }

    monomoe::Arguments arguments = {};
    arguments.x = uploaded(x);
    arguments.logits = uploaded(logits);
    arguments.w13 = w13;
    arguments.w13_scale = uploaded(w13_scale);
    arguments.w2 = w2;
    arguments.w2_scale = uploaded(w2_scale);
    arguments.y = zeroed(x.size() * 2);
    arguments.workspace = zeroed(monomoe::workspace_bytes(kernel.workspace_half_bytes));
    arguments.workspace_half_bytes = kernel.workspace_half_bytes;
    arguments.tokens = tokens;

    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuCtxSynchronize());  // the copies and fills are done
    for (int i = 0; i < 3; ++i) launch(kernel, function, arguments, stream);
    CHECK(cuStreamSynchronize(stream));
    std::vector<std::uint16_t> y(x.size());
    CHECK(cuMemcpyDtoH(y.data(), arguments.y, y.size() * 2));

    double worst = 1;
    bool right = true;
    for (std::uint32_t t = 0; t < tokens; ++t) {
        std::vector<float> input(shape.hidden);
        std::vector<double> want(shape.hidden);
        for (std::uint32_t i = 0; i < shape.hidden; ++i) input[i] = from_bf16(x[std::size_t{t} * shape.hidden + i]);
        for (const auto& [expert, weight] : route(shape, &logits[std::size_t{t} * shape.experts])) {
            const std::vector<float> part = experts.at(expert).forward(input);
            for (std::uint32_t i = 0; i < shape.hidden; ++i) want[i] += double{weight} * part[i];
        }
        double dot = 0, mine = 0, theirs = 0;
        for (std::uint32_t i = 0; i < shape.hidden; ++i) {
            const double got = from_bf16(y[std::size_t{t} * shape.hidden + i]);
            dot += got * want[i], mine += got * got, theirs += want[i] * want[i];
        }
        const double cosine = dot / std::sqrt(mine * theirs);
        worst = std::min(worst, cosine);
        right = right && cosine >= kLeastCosine;  // not if it is NaN
    }
    if (!right) fail("the result is wrong");
    std::printf("%s, %u tokens: %s, worst cosine %.5f\n", shape.name, tokens, kernel.name, worst);
    return 0;
}
