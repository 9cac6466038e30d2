// Enough of CUDA C++ to run the chain's kernels on the CPU: every CUDA thread is a real thread, see shim.cpp.

#pragma once
#include <math.h>
#include <string.h>

#include <bit>
#include <cstdint>
#include <utility>

#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other
#define __launch_bounds__(threads)

struct Dimension {
    unsigned x;
};

extern constinit thread_local Dimension threadIdx, blockIdx, blockDim;

void __syncthreads();
void __syncwarp();

// What the lane `source` of the warp passes to the same call.
std::uint64_t exchange(std::uint64_t bits, int source);

template <class T>
T __shfl_sync(unsigned, T value, int source, int width = 32) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    const int lane = threadIdx.x % 32;
    std::uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = exchange(bits, lane / width * width + source % width);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
    return __shfl_sync(mask, value, (threadIdx.x % 32) ^ lane_mask);
}

inline constexpr double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }

// Runs `body(data)` on every thread of every block.
void run_blocks(unsigned blocks, unsigned threads, void (*body)(void*), void* data);

// Calls a kernel as cuLaunchKernel does, with an array of pointers to its arguments.
template <auto kernel, class... A>
void launch(void (*)(A...), unsigned blocks, unsigned threads, void** arguments) {
    auto body = [](void* data) {
        [&]<std::size_t... i>(std::index_sequence<i...>) {
            kernel(*static_cast<A*>(static_cast<void**>(data)[i])...);
        }(std::index_sequence_for<A...>{});
    };
    run_blocks(blocks, threads, body, arguments);
}

template <auto kernel>
void launch(unsigned blocks, unsigned threads, void** arguments) {
    launch<kernel>(kernel, blocks, threads, arguments);
}
