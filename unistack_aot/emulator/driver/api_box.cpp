// Copies and fills of boxes: rows and planes with a pitch, in host or device memory. Arrays (texture memory) do not exist here.
#include <cstring>

#include "driver_types.hpp"
#include "memory.hpp"
#include "stream.hpp"

using namespace ua::emu;

namespace {

enum MemoryType : unsigned { host_memory = 1, device_memory = 2, array_memory = 3, unified_memory = 4 };

// CUDA_MEMCPY2D_v2 and CUDA_MEMCPY3D_v2, field by field.
struct Side2D {
    size_t x_bytes, y;
    MemoryType type;
    void* host;
    CUdeviceptr device;
    void* array;
    size_t pitch;
};
struct Copy2D {
    Side2D source, target;
    size_t width, height;
};
struct Side3D {
    size_t x_bytes, y, z, level;
    MemoryType type;
    void* host;
    CUdeviceptr device;
    void* array;
    void* reserved;
    size_t pitch, height;
};
struct Copy3D {
    Side3D source, target;
    size_t width, height, depth;
};
static_assert(sizeof(Copy2D) == 128 && sizeof(Copy3D) == 200, "the driver interface's own layouts");

// Where a side's first byte lies, how far its rows and planes are apart, and whether its bytes must lie in an allocation.
struct Place {
    char* first;
    size_t pitch, plane;
    bool on_device;
};

Place place_of(const Side3D& side, size_t width, size_t height) {
    const bool on_device = side.type == device_memory || side.type == unified_memory;
    char* base = on_device ? reinterpret_cast<char*>(side.device) : static_cast<char*>(side.host);
    const size_t pitch = side.pitch ? side.pitch : width, rows = side.height ? side.height : height;
    // A unified address may be the host's.
    const bool checked = on_device && (side.type == device_memory || find_allocation(side.device));
    return {base + side.x_bytes + side.y * pitch + side.z * pitch * rows, pitch, pitch * rows, checked};
}

bool fits(const Place& place, const Copy3D& copy) {
    if (!place.on_device) return true;
    const size_t last = (copy.depth - 1) * place.plane + (copy.height - 1) * place.pitch + copy.width;
    return inside_allocation(reinterpret_cast<uint64_t>(place.first), last);
}

// CUDA_SUCCESS and the work, or why there is none.
CUresult work_of(const Copy3D& copy, Work& work) {
    if (copy.source.type == array_memory || copy.target.type == array_memory) {
        say_unsupported("a copy from or to a CUarray");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    work = [] { return static_cast<CUresult>(CUDA_SUCCESS); };
    if (!copy.width || !copy.height || !copy.depth) return CUDA_SUCCESS;
    const Place from = place_of(copy.source, copy.width, copy.height), to = place_of(copy.target, copy.width, copy.height);
    const bool overlapping_rows = copy.height > 1 && (from.pitch < copy.width || to.pitch < copy.width);
    if (overlapping_rows || !from.first || !to.first || !fits(from, copy) || !fits(to, copy))
        return CUDA_ERROR_INVALID_VALUE;
    work = [=] {
        for (size_t z = 0; z < copy.depth; z++)
            for (size_t y = 0; y < copy.height; y++)
                memmove(to.first + z * to.plane + y * to.pitch, from.first + z * from.plane + y * from.pitch, copy.width);
        return static_cast<CUresult>(CUDA_SUCCESS);
    };
    return CUDA_SUCCESS;
}

Side3D deep(const Side2D& side) {
    return {side.x_bytes, side.y, 0, 0, side.type, side.host, side.device, side.array, nullptr, side.pitch, 0};
}
Copy3D deep(const Copy2D& copy) { return {deep(copy.source), deep(copy.target), copy.width, copy.height, 1}; }

CUresult copy_now(const Copy3D& copy) {
    Work work;
    const CUresult refused = work_of(copy, work);
    return refused ? refused : run_now(work);
}
CUresult copy_later(const Copy3D& copy, CUstream stream) {
    Work work;
    const CUresult refused = work_of(copy, work);
    return refused ? refused : submit(stream, work);
}

template <class T>
CUresult fill_of(CUdeviceptr target, size_t pitch, T value, size_t width, size_t height, Work& work) {
    work = [] { return static_cast<CUresult>(CUDA_SUCCESS); };
    if (!width || !height) return CUDA_SUCCESS;
    const size_t row = width * sizeof(T);
    if (height > 1 && pitch < row) return CUDA_ERROR_INVALID_VALUE;
    if (target % sizeof(T) || pitch % sizeof(T) || !inside_allocation(target, (height - 1) * pitch + row))
        return CUDA_ERROR_INVALID_VALUE;
    work = [=] {
        for (size_t y = 0; y < height; y++) {
            T* first = reinterpret_cast<T*>(target + y * pitch);
            for (size_t x = 0; x < width; x++) first[x] = value;
        }
        return static_cast<CUresult>(CUDA_SUCCESS);
    };
    return CUDA_SUCCESS;
}

}  // namespace

UA_DRIVER cuMemcpy2D_v2(const Copy2D* copy) { return copy_now(deep(*copy)); }
UA_DRIVER cuMemcpy2DUnaligned_v2(const Copy2D* copy) { return copy_now(deep(*copy)); }
UA_DRIVER cuMemcpy2DAsync_v2(const Copy2D* copy, CUstream stream) { return copy_later(deep(*copy), stream); }
UA_DRIVER cuMemcpy3D_v2(const Copy3D* copy) { return copy_now(*copy); }
UA_DRIVER cuMemcpy3DAsync_v2(const Copy3D* copy, CUstream stream) { return copy_later(*copy, stream); }

#define UA_DRIVER_MEMSET_2D(bits, type)                                                                              \
    UA_DRIVER cuMemsetD2D##bits##_v2(CUdeviceptr target, size_t pitch, type value, size_t width, size_t height) {    \
        Work work;                                                                                                   \
        const CUresult refused = fill_of(target, pitch, value, width, height, work);                                 \
        return refused ? refused : run_now(work);                                                                    \
    }                                                                                                                \
    UA_DRIVER cuMemsetD2D##bits##Async(CUdeviceptr target, size_t pitch, type value, size_t width, size_t height,    \
                                       CUstream stream) {                                                            \
        Work work;                                                                                                   \
        const CUresult refused = fill_of(target, pitch, value, width, height, work);                                 \
        return refused ? refused : submit(stream, work);                                                             \
    }
UA_DRIVER_MEMSET_2D(8, unsigned char)
UA_DRIVER_MEMSET_2D(16, unsigned short)
UA_DRIVER_MEMSET_2D(32, unsigned)
