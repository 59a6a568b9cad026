// The driver's view of the device and its contexts: one device, one context.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "driver_types.hpp"
#include "memory.hpp"
#include "stream.hpp"
#include "worker.hpp"

using namespace ua::emu;

namespace {

constexpr int driver_version = 13000;
constexpr char pci_bus_id[] = "0000:00:00.0";
// CUlimit: stack of a thread, printf buffer, heap, ... A fibre's stack is what it is: these are remembered, not obeyed.
size_t limits[8] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0};
int the_context;  // only its address matters
std::vector<CUcontext> context_stack;

CUcontext context() { return reinterpret_cast<CUcontext>(&the_context); }

// CUdevice_attribute -> value. Limits are those of compute capability 8.0; shared memory per block up to 227 KiB as on 9.0.
int device_attribute(int attribute) {
    switch (attribute) {
        case 1: return 1024;                                        // threads per block
        case 2: case 3: return 1024;                                // block x, y
        case 4: return 64;                                          // block z
        case 5: return 2147483647;                                  // grid x
        case 6: case 7: return 65535;                               // grid y, z
        case 8: return 48 * 1024;                                   // shared memory per block
        case 9: return 64 * 1024;                                   // constant memory
        case 10: return 32;                                         // warp size
        case 12: return 65536;                                      // registers per block
        case 13: return 1000000;                                    // clock, kHz
        case 14: return 512;                                        // texture alignment
        case 15: return 1;                                          // overlaps copies
        case 16: return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));  // multiprocessors
        case 36: return 1000000;                                    // memory clock, kHz
        case 37: return 64;                                         // bus width, bits
        case 38: return 1 << 20;                                    // L2 bytes
        case 39: return 2048;                                       // threads per multiprocessor
        case 41: return 1;                                          // unified addressing
        case 75: return static_cast<int>(settings.generation / 10);
        case 76: return static_cast<int>(settings.generation % 10);
        case 81: return 228 * 1024;                                 // shared memory per multiprocessor
        case 82: return 65536;                                      // registers per multiprocessor
        case 97: return 227 * 1024;                                 // shared memory per block, opted in
        default: return 0;
    }
}

const char* error_name(CUresult error) {
    switch (error) {
        case CUDA_SUCCESS: return "no error";
        case CUDA_ERROR_INVALID_VALUE: return "invalid argument";
        case CUDA_ERROR_OUT_OF_MEMORY: return "out of memory";
        case CUDA_ERROR_INVALID_IMAGE: return "device kernel image is invalid";
        case CUDA_ERROR_NO_BINARY_FOR_GPU: return "no kernel image for the emulator: this one was built for a GPU";
        case CUDA_ERROR_NOT_FOUND: return "named symbol not found";
        case CUDA_ERROR_ILLEGAL_ADDRESS: return "an illegal memory access was encountered";
        case CUDA_ERROR_LAUNCH_FAILED: return "unspecified launch failure";
        case CUDA_ERROR_NOT_SUPPORTED: return "operation not supported by the emulator";
        default: return "error of the emulated driver";
    }
}

}  // namespace

UA_DRIVER cuInit(unsigned) { return CUDA_SUCCESS; }
UA_DRIVER cuDriverGetVersion(int* version) {
    *version = driver_version;
    return CUDA_SUCCESS;
}
UA_DRIVER cuGetErrorString(CUresult error, const char** text) {
    *text = error_name(error);
    return CUDA_SUCCESS;
}
UA_DRIVER cuDeviceGetCount(int* count) {
    *count = 1;
    return CUDA_SUCCESS;
}
UA_DRIVER cuDeviceGet(CUdevice* device, int ordinal) {
    if (ordinal) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
}
UA_DRIVER cuDeviceGetName(char* name, int size, CUdevice) {
    snprintf(name, size, "unistack emulator");
    return CUDA_SUCCESS;
}
UA_DRIVER cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
    *bytes = device_bytes;
    return CUDA_SUCCESS;
}
UA_DRIVER cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
    *major = device_attribute(75);
    *minor = device_attribute(76);
    return CUDA_SUCCESS;
}
UA_DRIVER cuDeviceGetPCIBusId(char* name, int size, CUdevice) {
    snprintf(name, size, "%s", pci_bus_id);
    return CUDA_SUCCESS;
}
UA_DRIVER cuDeviceGetByPCIBusId(CUdevice* device, const char* name) {
    if (strcmp(name, pci_bus_id) != 0) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
}
UA_DRIVER cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
    *can = 0;
    return CUDA_SUCCESS;
}
UA_DRIVER cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
    *value = device_attribute(attribute);
    return CUDA_SUCCESS;
}

UA_DRIVER cuCtxCreate_v4(CUcontext* handle, void*, unsigned, CUdevice) {
    reset_sticky_error();
    context_stack.push_back(context());
    *handle = context();
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxCreate_v2(CUcontext* handle, unsigned flags, CUdevice device) {
    return cuCtxCreate_v4(handle, nullptr, flags, device);
}
UA_DRIVER cuCtxDestroy_v2(CUcontext) { return finish_all(); }
UA_DRIVER cuCtxAttach(CUcontext* handle, unsigned) {
    *handle = context();
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxDetach(CUcontext) { return CUDA_SUCCESS; }
UA_DRIVER cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice) {
    *handle = context();
    return CUDA_SUCCESS;
}
UA_DRIVER cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
UA_DRIVER cuCtxPushCurrent_v2(CUcontext handle) {
    context_stack.push_back(handle);
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxPopCurrent_v2(CUcontext* handle) {
    if (context_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle) *handle = context_stack.back();
    context_stack.pop_back();
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxGetCurrent(CUcontext* handle) {
    *handle = context_stack.empty() ? nullptr : context_stack.back();
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxGetDevice(CUdevice* device) {
    if (context_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *device = 0;
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxGetApiVersion(CUcontext, unsigned* version) {
    *version = driver_version;
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxSynchronize() { return finish_all(); }
UA_DRIVER cuCtxSetCacheConfig(int) { return CUDA_SUCCESS; }
UA_DRIVER cuCtxGetCacheConfig(int* config) {
    *config = 0;
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxGetSharedMemConfig(int* config) {
    *config = 1;  // banks of four bytes
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxSetSharedMemConfig(int) { return CUDA_SUCCESS; }
UA_DRIVER cuCtxGetLimit(size_t* value, unsigned limit) {
    if (limit >= sizeof limits / sizeof *limits) return CUDA_ERROR_INVALID_VALUE;
    *value = limits[limit];
    return CUDA_SUCCESS;
}
UA_DRIVER cuCtxSetLimit(unsigned limit, size_t value) {
    if (limit >= sizeof limits / sizeof *limits) return CUDA_ERROR_INVALID_VALUE;
    limits[limit] = value;
    return CUDA_SUCCESS;
}
UA_DRIVER cuProfilerStart() { return CUDA_SUCCESS; }
UA_DRIVER cuProfilerStop() { return CUDA_SUCCESS; }
