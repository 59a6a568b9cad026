// The driver's memory calls: every one checks that its range lies inside one allocation.
#include <cstdlib>
#include <cstring>

#include "driver_types.hpp"
#include "memory.hpp"
#include "stream.hpp"

using namespace ua::emu;

namespace {

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

Work copy(void* target, const void* source, size_t bytes) {
    return [=] {
        memmove(target, source, bytes);
        return CUDA_SUCCESS;
    };
}

template <class T>
Work fill(CUdeviceptr target, T value, size_t count) {
    return [=] {
        for (size_t i = 0; i < count; i++) static_cast<T*>(pointer(target))[i] = value;
        return CUDA_SUCCESS;
    };
}

CUresult allocate_device(CUdeviceptr* address, size_t bytes) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    *address = allocate(bytes);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

UA_DRIVER cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) { return allocate_device(address, bytes); }
UA_DRIVER cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned) { return allocate_device(address, bytes); }
UA_DRIVER cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned) {
    *pitch = (width + 511) & ~size_t{511};
    return allocate_device(address, *pitch * height);
}
UA_DRIVER cuMemFree_v2(CUdeviceptr address) {
    finish_all();
    return release(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
UA_DRIVER cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    *total = device_bytes;
    *free_bytes = device_bytes - allocated_bytes();
    return CUDA_SUCCESS;
}
UA_DRIVER cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
    const Allocation* allocation = find_allocation(address);
    if (!allocation) return CUDA_ERROR_INVALID_VALUE;
    if (base) *base = allocation->address;
    if (bytes) *bytes = allocation->bytes;
    return CUDA_SUCCESS;
}

UA_DRIVER cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    return posix_memalign(memory, 4096, bytes) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
UA_DRIVER cuMemFreeHost(void* memory) {
    finish_all();
    free(memory);
    return CUDA_SUCCESS;
}
UA_DRIVER cuMemHostRegister_v2(void*, size_t, unsigned) { return CUDA_SUCCESS; }
UA_DRIVER cuMemHostUnregister(void*) { return finish_all(); }
UA_DRIVER cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* host, unsigned) {
    *address = reinterpret_cast<CUdeviceptr>(host);
    return CUDA_SUCCESS;
}
UA_DRIVER cuMemHostGetFlags(unsigned* flags, void*) {
    *flags = 0;
    return CUDA_SUCCESS;
}

UA_DRIVER cuMemcpyHtoD_v2(CUdeviceptr target, const void* source, size_t bytes) {
    if (!inside_allocation(target, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return run_now(copy(pointer(target), source, bytes));
}
UA_DRIVER cuMemcpyDtoH_v2(void* target, CUdeviceptr source, size_t bytes) {
    if (!inside_allocation(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return run_now(copy(target, pointer(source), bytes));
}
UA_DRIVER cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    if (!inside_allocation(target, bytes) || !inside_allocation(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return run_now(copy(pointer(target), pointer(source), bytes));
}
UA_DRIVER cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, size_t bytes, CUstream stream) {
    if (!inside_allocation(target, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, copy(pointer(target), source, bytes));
}
UA_DRIVER cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, size_t bytes, CUstream stream) {
    if (!inside_allocation(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, copy(target, pointer(source), bytes));
}
UA_DRIVER cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    if (!inside_allocation(target, bytes) || !inside_allocation(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, copy(pointer(target), pointer(source), bytes));
}

// There is one context: a copy between contexts is a copy.
UA_DRIVER cuMemcpyPeer(CUdeviceptr target, CUcontext, CUdeviceptr source, CUcontext, size_t bytes) {
    return cuMemcpyDtoD_v2(target, source, bytes);
}
UA_DRIVER cuMemcpyPeerAsync(CUdeviceptr target, CUcontext, CUdeviceptr source, CUcontext, size_t bytes, CUstream stream) {
    return cuMemcpyDtoDAsync_v2(target, source, bytes, stream);
}

#define UA_DRIVER_MEMSET(bits, type)                                                                     \
    UA_DRIVER cuMemsetD##bits##_v2(CUdeviceptr target, type value, size_t count) {                       \
        if (!inside_allocation(target, count * sizeof(type))) return CUDA_ERROR_INVALID_VALUE;           \
        return run_now(fill(target, value, count));                                                      \
    }                                                                                                    \
    UA_DRIVER cuMemsetD##bits##Async(CUdeviceptr target, type value, size_t count, CUstream stream) {    \
        if (!inside_allocation(target, count * sizeof(type))) return CUDA_ERROR_INVALID_VALUE;           \
        return submit(stream, fill(target, value, count));                                               \
    }
UA_DRIVER_MEMSET(8, unsigned char)
UA_DRIVER_MEMSET(16, unsigned short)
UA_DRIVER_MEMSET(32, unsigned)
