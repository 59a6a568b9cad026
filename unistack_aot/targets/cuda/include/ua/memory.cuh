// Wide accesses to memory.
//
// load<N>(p), store(p, v)   N consecutive elements; p aligned to sizeof(T) * N, or to 16 when that is more. Up to 16 bytes go in
//                           one access, more in several of 16. store: device memory only
// store_shared(p, v)        the same into shared memory
// load_streaming<N>(p)      the same for data that will not be read again: evict-first hint, device memory only
// store_streaming(p, v)     the same for data that nobody reads soon
#pragma once
#include "types.cuh"

namespace ua {

namespace detail {

template <int BYTES>
struct Word;
template <>
struct Word<1> {
    typedef uint8_t Type;
};
template <>
struct Word<2> {
    typedef uint16_t Type;
};
template <>
struct Word<4> {
    typedef uint32_t Type;
};
template <>
struct Word<8> {
#if UA_EMULATED
    typedef Vector<uint32_t, 2> Type;
#else
    typedef uint2 Type;
#endif
};
template <>
struct Word<16> {
#if UA_EMULATED
    typedef Vector<uint32_t, 4> Type;
#else
    typedef uint4 Type;
#endif
};

enum class Hint { none, streaming, shared };

#if UA_EMULATED && defined(UA_EMULATOR_CHECKED)
// Out of line and not instrumented: the access is reported once, at its full width, with the caller's address as its site.
template <int BYTES>
__attribute__((noinline, no_sanitize("thread"))) void checked_copy(void* to, const void* from, bool writes) {
    ua_emu_note(writes ? to : from, BYTES, writes ? UA_EMU_WRITE : UA_EMU_READ, __builtin_return_address(0));
    typename Word<BYTES>::Type word;
    __builtin_memcpy(&word, from, BYTES);
    __builtin_memcpy(to, &word, BYTES);
}
#endif

template <int BYTES, Hint HINT>
UA_DEVICE void read_word(void* to, const void* from) {
    typedef typename Word<BYTES>::Type W;
#if UA_EMULATED && defined(UA_EMULATOR_CHECKED)
    checked_copy<BYTES>(to, from, false);
#elif UA_EMULATED
    memcpy(to, __builtin_assume_aligned(from, BYTES), BYTES);
#else
    const W word = HINT == Hint::streaming ? __ldcs(static_cast<const W*>(from)) : *static_cast<const W*>(from);
    memcpy(to, &word, BYTES);
#endif
}

template <int BYTES, Hint HINT>
UA_DEVICE void write_word(void* to, const void* from) {
    typedef typename Word<BYTES>::Type W;
#if UA_EMULATED && defined(UA_EMULATOR_CHECKED)
    checked_copy<BYTES>(to, from, true);
#elif UA_EMULATED
    memcpy(__builtin_assume_aligned(to, BYTES), from, BYTES);
#else
    W word;
    memcpy(&word, from, BYTES);
    if constexpr (HINT == Hint::streaming)
        __stcs(static_cast<W*>(to), word);
    else if constexpr (HINT == Hint::none && BYTES == 16)
        // As an instruction: the compiler takes a struct's members apart and does not always put them together again.
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(word.x),
                     "r"(word.y), "r"(word.z), "r"(word.w)
                     : "memory");
    else if constexpr (HINT == Hint::none && BYTES == 8)
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(word.x), "r"(word.y)
                     : "memory");
    else
        *static_cast<W*>(to) = word;
#endif
}

template <int N, Hint HINT, class T>
UA_DEVICE Vector<T, N> read(const T* source) {
    constexpr int bytes = sizeof(T) * N, step = bytes > 16 ? 16 : bytes;
    static_assert(bytes % step == 0 && (step & (step - 1)) == 0, "a vector is a power of two of bytes, or many times 16");
    Vector<T, N> result;
    UA_UNROLL
    for (int i = 0; i < bytes / step; i++)
        read_word<step, HINT>(reinterpret_cast<char*>(&result) + i * step,
                              reinterpret_cast<const char*>(source) + i * step);
    return result;
}

template <Hint HINT, class T, int N>
UA_DEVICE void write(T* target, const Vector<T, N>& value) {
    constexpr int bytes = sizeof(T) * N, step = bytes > 16 ? 16 : bytes;
    static_assert(bytes % step == 0 && (step & (step - 1)) == 0, "a vector is a power of two of bytes, or many times 16");
    UA_UNROLL
    for (int i = 0; i < bytes / step; i++)
        write_word<step, HINT>(reinterpret_cast<char*>(target) + i * step,
                               reinterpret_cast<const char*>(&value) + i * step);
}

}  // namespace detail

template <int N, class T>
UA_DEVICE Vector<T, N> load(const T* source) {
    return detail::read<N, detail::Hint::none>(source);
}
template <int N, class T>
UA_DEVICE Vector<T, N> load_streaming(const T* source) {
    return detail::read<N, detail::Hint::streaming>(source);
}
template <class T, int N>
UA_DEVICE void store(T* target, const Vector<T, N>& value) {
    detail::write<detail::Hint::none>(target, value);
}
template <class T, int N>
UA_DEVICE void store_shared(T* target, const Vector<T, N>& value) {
    detail::write<detail::Hint::shared>(target, value);
}
template <class T, int N>
UA_DEVICE void store_streaming(T* target, const Vector<T, N>& value) {
    detail::write<detail::Hint::streaming>(target, value);
}

}  // namespace ua
