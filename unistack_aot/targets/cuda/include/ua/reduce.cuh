// Reductions over the lanes of a warp and the threads of a block, for any monoid.
//
// A monoid is a struct with a trivially copyable State and two static device functions:
//     struct Sum {
//         typedef float State;
//         static UA_METHOD State identity() { return 0.0f; }
//         static UA_METHOD State merge(State a, State b) { return a + b; }
//     };
// merge must be associative. It is always called with the state of the lower thread first and in the same tree, so every
// thread gets the same bits and a non-commutative monoid (scan-like, first-wins) is safe.
//
// warp_reduce<M, WIDTH>(s)            over aligned groups of WIDTH lanes (a power of two up to 32); all 32 lanes must call
// block_reduce<M, WARPS>(s, scratch)  over the block's WARPS warps; scratch: shared memory, reduce_scratch<M, WARPS>() bytes,
//                                     aligned as State. Ends with a barrier, so scratch may be used again at once.
// row_reduce<M, WIDTH>(s, scratch)    over aligned groups of WIDTH threads, WIDTH a power of two: warp_reduce up to 32, otherwise
//                                     through scratch, reduce_scratch<M, block size / 32>() bytes; all threads must call
#pragma once
#include "types.cuh"

namespace ua {

// The value of the lane `flip` away (exclusive or), for any trivially copyable type.
template <class T>
UA_DEVICE T shuffle_xor(T value, int flip) {
#if UA_EMULATED
    return __shfl_xor_sync(all_lanes, value, flip);
#else
    constexpr int words = (sizeof(T) + 3) / 4;
    uint32_t word[words] = {};
    memcpy(word, &value, sizeof(T));
    UA_UNROLL
    for (int i = 0; i < words; i++) word[i] = __shfl_xor_sync(all_lanes, word[i], flip);
    memcpy(&value, word, sizeof(T));
    return value;
#endif
}

// The value of lane `source`.
template <class T>
UA_DEVICE T shuffle(T value, int source) {
#if UA_EMULATED
    return __shfl_sync(all_lanes, value, source);
#else
    constexpr int words = (sizeof(T) + 3) / 4;
    uint32_t word[words] = {};
    memcpy(word, &value, sizeof(T));
    UA_UNROLL
    for (int i = 0; i < words; i++) word[i] = __shfl_sync(all_lanes, word[i], source);
    memcpy(&value, word, sizeof(T));
    return value;
#endif
}

#if UA_EMULATED
namespace detail {

// The whole tree in one exchange: the same merges as the shuffles below, done by the last lane to arrive.
template <class M, int WIDTH>
void reduce_lanes(void** lanes, unsigned, const void*) {
    typedef typename M::State State;
    for (int group = 0; group < 32; group += WIDTH) {
        State state[WIDTH];
        for (int i = 0; i < WIDTH; i++) state[i] = *static_cast<State*>(lanes[group + i]);
        for (int distance = 1; distance < WIDTH; distance *= 2)
            for (int i = 0; i < WIDTH; i += 2 * distance) state[i] = M::merge(state[i], state[i + distance]);
        for (int i = 0; i < WIDTH; i++) *static_cast<State*>(lanes[group + i]) = state[0];
    }
}

}  // namespace detail

template <class M, int WIDTH = 32>
UA_DEVICE typename M::State warp_reduce(typename M::State state, UA_SITE) {
    ua_emu_warp(all_lanes, &state, detail::reduce_lanes<M, WIDTH>, nullptr, site);
    return state;
}
#else
template <class M, int WIDTH = 32>
UA_DEVICE typename M::State warp_reduce(typename M::State state) {
    UA_UNROLL
    for (int distance = 1; distance < WIDTH; distance *= 2) {
        const typename M::State other = shuffle_xor(state, distance);
        state = lane_index() & distance ? M::merge(other, state) : M::merge(state, other);
    }
    return state;
}
#endif

template <class M, int WARPS>
constexpr int reduce_scratch() {
    return WARPS * static_cast<int>(sizeof(typename M::State));
}

namespace detail {

// Merges the WARPS states that start at scratch[first] in order; each thread does all of it, so none has to wait twice.
template <class M, int WARPS>
UA_DEVICE typename M::State merge_warps(const typename M::State* scratch, int first) {
    typename M::State state = scratch[first];
    UA_UNROLL
    for (int i = 1; i < WARPS; i++) state = M::merge(state, scratch[first + i]);
    return state;
}

}  // namespace detail

template <class M, int WARPS>
UA_DEVICE typename M::State block_reduce(typename M::State state, void* scratch) {
    state = warp_reduce<M>(state);
    if (WARPS == 1) return state;
    auto* states = static_cast<typename M::State*>(scratch);
    if (lane_index() == 0) states[warp_index()] = state;
    __syncthreads();
    state = detail::merge_warps<M, WARPS>(states, 0);
    __syncthreads();
    return state;
}

template <class M, int WIDTH>
UA_DEVICE typename M::State row_reduce(typename M::State state, void* scratch) {
    constexpr int lanes = WIDTH < 32 ? WIDTH : 32, warps = WIDTH < 32 ? 1 : WIDTH / 32;
    state = warp_reduce<M, lanes>(state);
    if (warps == 1) return state;
    auto* states = static_cast<typename M::State*>(scratch);
    if (lane_index() == 0) states[warp_index()] = state;
    __syncthreads();
    state = detail::merge_warps<M, warps>(states, warp_index() / warps * warps);
    __syncthreads();
    return state;
}

// ---- monoids that every generated program may need; others are printed beside the kernel

template <class T>
struct Sum {
    typedef T State;
    static UA_METHOD State identity() { return T(0); }
    static UA_METHOD State merge(State a, State b) { return a + b; }
};

// Softmax's normaliser: the largest x so far, and the sum of exp(x - largest). identity() is (-inf, 0).
struct SoftmaxMonoid {
    struct State {
        float largest, sum;
    };
    static UA_METHOD State identity() { return {-INFINITY, 0.0f}; }
    static UA_METHOD State of(float x) { return {x, 1.0f}; }
    static UA_METHOD State merge(State a, State b) {
        const float largest = a.largest > b.largest ? a.largest : b.largest;
        // exp(-inf - -inf) would be NaN: an empty side, or one of -inf only, keeps its sum as it is.
        const float of_a = a.largest == largest ? a.sum : a.sum * ::expf(a.largest - largest);
        const float of_b = b.largest == largest ? b.sum : b.sum * ::expf(b.largest - largest);
        return {largest, of_a + of_b};
    }
};

// Count, mean and sum of squared distances from the mean (Welford; Chan et al.'s merge).
struct WelfordMonoid {
    struct State {
        float count, mean, squares;
    };
    static UA_METHOD State identity() { return {0.0f, 0.0f, 0.0f}; }
    static UA_METHOD State of(float x) { return {1.0f, x, 0.0f}; }
    static UA_METHOD State merge(State a, State b) {
        const float count = a.count + b.count;
        if (b.count == 0.0f) return a;
        const float delta = b.mean - a.mean, share = b.count / count;
        if (delta - delta != 0.0f) return {count, a.mean + b.mean, delta - delta};  // infinite, NaN: no distance
        return {count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share};
    }
};

}  // namespace ua
