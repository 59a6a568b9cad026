// Calls functions of a shared library for a process of another machine that cannot load it (foreign.py):
// requests come on standard input, answers go to standard output, all numbers are 64 bits wide.
//   request: name, regions (bytes after an address modulo 64), pointers to store into regions, arguments
//   answer:  what was returned, the bytes of all regions
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void need(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "%s: %s\n", what, dlerror());
    std::_Exit(3);
}

int64_t number() {
    int64_t value = 0;
    if (std::fread(&value, 8, 1, stdin) != 1) std::exit(0);
    return value;
}

struct Region {
    char* base;
    char* data;
    int64_t size;
};

Region region() {
    const int64_t size = number(), shift = number();
    char* base = static_cast<char*>(std::aligned_alloc(64, (size + shift + 127) / 64 * 64));
    need(base != nullptr, "memory");
    need(size == 0 || std::fread(base + shift, size, 1, stdin) == 1, "region");
    return {base, base + shift, size};
}

// A call with 16 integers or pointers and one float: on this machine the two kinds are counted apart.
using Function = int64_t (*)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                             int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float);

void serve(void* library) {
    std::string name(number(), '\0');
    need(std::fread(name.data(), name.size(), 1, stdin) == 1, "name");
    std::vector<Region> regions(number());
    for (Region& each : regions) each = region();
    for (int64_t count = number(); count > 0; --count) {
        char* place = regions[number()].data + number();
        char* target = regions[number()].data + number();
        std::memcpy(place, &target, 8);
    }
    int64_t a[16] = {};
    float real = 0;
    const int64_t count = number();
    for (int64_t k = 0, next = 0; k < count; ++k) {
        const int64_t kind = number(), value = number();
        if (kind == 0) a[next++] = value;
        if (kind == 1) std::memcpy(&real, &value, 4);
        if (kind == 2) a[next++] = reinterpret_cast<int64_t>(regions[value].data);
    }
    void* symbol = dlsym(library, name.c_str());
    need(symbol != nullptr, name.c_str());
    const int64_t result = reinterpret_cast<Function>(symbol)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                                                              a[10], a[11], a[12], a[13], a[14], a[15], real);
    std::fwrite(&result, 8, 1, stdout);
    for (const Region& each : regions) {
        std::fwrite(each.data, 1, each.size, stdout);
        std::free(each.base);
    }
    std::fflush(stdout);
}

}  // namespace

int main(int, char** arguments) {
    void* library = dlopen(arguments[1], RTLD_NOW);
    need(library != nullptr, arguments[1]);
    for (;;) serve(library);
}
