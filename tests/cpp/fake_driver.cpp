// Stands in for the CUDA driver, as far as call_kernel.cpp uses it: device memory is a sparse file in $FAKE_DRIVER that
// others can map, and the first launch writes its arguments to $FAKE_DRIVER/launch and runs $FAKE_DRIVER_LAUNCH.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "monomoe_kernels.h"

namespace {

std::map<CUdeviceptr, std::string> files;
std::string kernel_name;

std::string folder() { return std::getenv("FAKE_DRIVER"); }
std::string file_of(std::uint64_t address) { return address ? files.at(address) : "-"; }

}  // namespace

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice*, int) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult cuStreamCreate(CUstream*, unsigned) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }

CUresult cuGetErrorString(CUresult, const char** text) {
    *text = "said the fake driver";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    const char* sms = std::getenv("FAKE_DRIVER_SMS");
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? monomoe::kGpu.compute_major
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? monomoe::kGpu.compute_minor
             : sms                                                       ? std::atoi(sms)
                                                                         : monomoe::kGpu.sms;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule*, const char* path) {
    return std::ifstream(path) ? CUDA_SUCCESS : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char* name) {
    kernel_name = name;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t) {
    *blocks = 1;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
    const char* cluster = std::getenv("FAKE_DRIVER_CLUSTER");
    *value = attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH && cluster ? std::atoi(cluster) : 0;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig* config) {
    const unsigned ctas = config->attrs[0].value.clusterDim.x;
    if (config->numAttrs != 1 || config->attrs[0].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) return CUDA_ERROR_INVALID_VALUE;
    *clusters = static_cast<int>(config->gridDimX / ctas) - (std::getenv("FAKE_DRIVER_FULL") ? 1 : 0);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* memory, std::size_t bytes) {
    const std::string path = folder() + "/memory" + std::to_string(files.size());
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = reinterpret_cast<CUdeviceptr>(mapped);
    files[*memory] = path;
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8(CUdeviceptr memory, unsigned char value, std::size_t) {  // a new file is zero already
    return value == 0 && files.count(memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(
    CUfunction, unsigned grid, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned shared, CUstream,
    void**, void** extra) {
    if (extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER) return CUDA_ERROR_INVALID_VALUE;
    static bool launched = false;
    if (launched) return CUDA_SUCCESS;
    launched = true;
    const auto& a = *static_cast<const monomoe::Arguments*>(extra[1]);
    std::ofstream(folder() + "/launch")
        << kernel_name << '\n' << grid << '\n' << threads << '\n' << shared << '\n' << file_of(a.x) << '\n'
        << file_of(a.logits) << '\n' << file_of(a.bias) << '\n' << file_of(a.w13) << '\n' << file_of(a.w13_scale)
        << '\n' << file_of(a.w2) << '\n' << file_of(a.w2_scale) << '\n' << file_of(a.y) << '\n'
        << file_of(a.workspace) << '\n'
        << a.workspace_half_bytes << '\n' << a.tokens << '\n' << a.wait_limit_ns << '\n';
    return std::system(std::getenv("FAKE_DRIVER_LAUNCH")) == 0 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}
