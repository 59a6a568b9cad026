// Modules, functions and launches of the driver: a module image is a shared object for the host.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "driver_types.hpp"
#include "grid.hpp"
#include "stream.hpp"

using namespace ua::emu;

namespace {

#if defined(__x86_64__)
constexpr int host_machine = EM_X86_64;
#else
constexpr int host_machine = EM_AARCH64;
#endif

struct Function {
    const ua_emu_kernel* kernel;
    int shared_limit = 48 * 1024;  // until the attribute raises it, as on a GPU
};

struct Module {
    void* library = nullptr;
    int file = -1;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

// The packed arguments of one launch, kept until it runs.
struct Arguments {
    std::vector<std::max_align_t> storage;
    std::vector<size_t> offsets;
    size_t bytes = 0;

    explicit Arguments(const ua_emu_kernel& kernel) {
        for (unsigned i = 0; i < kernel.argument_count; i++) {
            bytes = (bytes + kernel.alignments[i] - 1) / kernel.alignments[i] * kernel.alignments[i];
            offsets.push_back(bytes);
            bytes += kernel.sizes[i];
        }
        storage.resize(bytes / sizeof(std::max_align_t) + 1);
    }
    char* data() { return reinterpret_cast<char*>(storage.data()); }

    bool unpack(const ua_emu_kernel& kernel, void** extra) {
        const void* buffer = nullptr;
        size_t given = 0;
        for (void** entry = extra; *entry != nullptr; entry += 2) {
            const auto tag = reinterpret_cast<std::uintptr_t>(entry[0]);
            if (tag == launch_parameter_pointer) buffer = entry[1];
            if (tag == launch_parameter_size) given = *static_cast<size_t*>(entry[1]);
        }
        if (given != bytes) {
            set_error(std::string("kernel ") + kernel.name + " takes " + std::to_string(bytes) +
                      " bytes of arguments, was given " + std::to_string(given));
            return false;
        }
        if (bytes) memcpy(data(), buffer, bytes);
        return true;
    }
};

bool launchable(const Function& function, ua_emu_dim grid, ua_emu_dim block, unsigned shared) {
    const bool grid_fits = grid.x && grid.y && grid.z && grid.x <= 2147483647 && grid.y <= 65535 && grid.z <= 65535;
    const bool block_fits = block.x && block.y && block.z && block.z <= 64 &&
                            static_cast<uint64_t>(block.x) * block.y * block.z <= 1024;
    const bool shared_fits = shared <= static_cast<unsigned>(function.shared_limit);
    if (grid_fits && block_fits && shared_fits) return true;
    char text[300];
    snprintf(text, sizeof text, "kernel %s: grid (%u,%u,%u), block (%u,%u,%u) or %u bytes of shared memory (limit %d)",
             function.kernel->name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, function.shared_limit);
    set_error(std::string("launch refused: ") + text);
    return false;
}

CUresult run_launch(const Function& function, ua_emu_dim grid, ua_emu_dim block, unsigned shared, Arguments& arguments) {
    std::vector<void*> pointers;
    for (const size_t offset : arguments.offsets) pointers.push_back(arguments.data() + offset);
    const Launch launch{function.kernel, pointers.data(), grid, block, shared};
    switch (run_grid(launch)) {
        case Outcome::done: return CUDA_SUCCESS;
        case Outcome::illegal_address: return CUDA_ERROR_ILLEGAL_ADDRESS;
        case Outcome::failed: return CUDA_ERROR_LAUNCH_FAILED;
    }
    return CUDA_ERROR_LAUNCH_FAILED;
}

}  // namespace

UA_DRIVER cuModuleLoadData(CUmodule* handle, const void* image) {
    const auto* header = static_cast<const Elf64_Ehdr*>(image);
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
        set_error("the module is not an ELF image");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    if (header->e_machine != host_machine) {
        set_error("the module is built for ELF machine " + std::to_string(header->e_machine) +
                  " (190 is CUDA), not for this host");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    // The call passes no length: a linker writes the section table last.
    const size_t bytes = header->e_shoff + size_t{header->e_shentsize} * header->e_shnum;
    auto module = std::make_unique<Module>();
    module->file = memfd_create("unistack_module", MFD_CLOEXEC);
    if (module->file < 0 || write(module->file, image, bytes) != static_cast<ssize_t>(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    // The file stays open: the dynamic linker tells libraries apart by name.
    const std::string path = "/proc/self/fd/" + std::to_string(module->file);
    module->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module->library) {
        set_error(dlerror());
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *handle = reinterpret_cast<CUmodule>(module.release());
    return CUDA_SUCCESS;
}

UA_DRIVER cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned, int*, void**) {
    return cuModuleLoadData(handle, image);
}

UA_DRIVER cuModuleLoad(CUmodule* handle, const char* path) {
    FILE* file = fopen(path, "rb");
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    std::string image;
    char chunk[65536];
    for (size_t count; (count = fread(chunk, 1, sizeof chunk, file)) > 0;) image.append(chunk, count);
    fclose(file);
    if (image.size() < sizeof(Elf64_Ehdr)) return CUDA_ERROR_INVALID_IMAGE;
    return cuModuleLoadData(handle, image.data());
}

UA_DRIVER cuModuleUnload(CUmodule handle) {
    finish_all();
    const std::unique_ptr<Module> module(reinterpret_cast<Module*>(handle));
    dlclose(module->library);
    close(module->file);
    return CUDA_SUCCESS;
}

UA_DRIVER cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
    auto* module = reinterpret_cast<Module*>(module_handle);
    const std::string symbol = std::string("ua_emu_kernel_") + name;
    const auto* kernel = static_cast<const ua_emu_kernel*>(dlsym(module->library, symbol.c_str()));
    if (!kernel) {
        set_error(std::string("the module has no kernel ") + name);
        return CUDA_ERROR_NOT_FOUND;
    }
    std::unique_ptr<Function>& function = module->functions[name];
    if (!function) function = std::make_unique<Function>(Function{kernel});
    *handle = reinterpret_cast<CUfunction>(function.get());
    return CUDA_SUCCESS;
}

UA_DRIVER cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module_handle, const char* name) {
    auto* module = reinterpret_cast<Module*>(module_handle);
    void* object = dlsym(module->library, name);
    if (!object) return CUDA_ERROR_NOT_FOUND;
    Dl_info information;
    ElfW(Sym)* symbol = nullptr;
    dladdr1(object, &information, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT);
    if (address) *address = reinterpret_cast<CUdeviceptr>(object);
    if (bytes) *bytes = symbol ? symbol->st_size : 0;
    return CUDA_SUCCESS;
}

UA_DRIVER cuFuncGetAttribute(int* value, int attribute, CUfunction handle) {
    const auto* function = reinterpret_cast<Function*>(handle);
    switch (attribute) {
        case 0: *value = 1024; break;                                       // threads per block
        case 4: *value = 32; break;                                         // registers
        case 5: *value = static_cast<int>(settings.generation); break;      // PTX version
        case 8: *value = function->shared_limit; break;                     // dynamic shared memory
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}
UA_DRIVER cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
    if (attribute != 8) return CUDA_SUCCESS;
    if (value < 0 || value > 227 * 1024) return CUDA_ERROR_INVALID_VALUE;
    reinterpret_cast<Function*>(handle)->shared_limit = value;
    return CUDA_SUCCESS;
}
UA_DRIVER cuFuncSetCacheConfig(CUfunction, int) { return CUDA_SUCCESS; }
// pycuda's Function.__call__ still makes these two calls of the old launch interface.
UA_DRIVER cuFuncSetBlockShape(CUfunction, int, int, int) { return CUDA_SUCCESS; }
UA_DRIVER cuFuncSetSharedSize(CUfunction, unsigned) { return CUDA_SUCCESS; }

UA_DRIVER cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** parameters,
                         void** extra) {
    const Function& function = *reinterpret_cast<Function*>(handle);
    const ua_emu_kernel& kernel = *function.kernel;
    const ua_emu_dim grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
    if (!launchable(function, grid, block, shared)) return CUDA_ERROR_INVALID_VALUE;
    auto arguments = std::make_shared<Arguments>(kernel);
    if (parameters) {
        for (unsigned i = 0; i < kernel.argument_count; i++)
            memcpy(arguments->data() + arguments->offsets[i], parameters[i], kernel.sizes[i]);
    } else if (kernel.argument_count && (!extra || !arguments->unpack(kernel, extra))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return submit(stream, [=, &function] { return run_launch(function, grid, block, shared, *arguments); });
}
