// The threads behind shim.h: one std::thread per CUDA thread, one std::barrier for the block and two for each
// warp.
//
// Under ThreadSanitizer only __syncwarp and __syncthreads order memory, as CUDA promises: the exchange inside
// a shuffle is hidden from the sanitizer, or else a shuffle would cover up a missing __syncwarp.

#include "shim.h"

#include <barrier>
#include <thread>
#include <vector>

namespace {

struct Warp {
    std::barrier<> sync{32};
    std::barrier<> exchange{32};
    std::uint64_t slots[2][32];  // used in turn, so that one barrier an exchange will do
};

thread_local Warp* warp;
thread_local std::barrier<>* block;
thread_local unsigned exchanges;

}  // namespace

constinit thread_local Dimension threadIdx, blockIdx, blockDim;

#ifdef __SANITIZE_THREAD__
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
struct Hidden {
    Hidden() {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~Hidden() {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
};
#else
struct Hidden {};
#endif

void __syncthreads() { block->arrive_and_wait(); }
void __syncwarp() { warp->sync.arrive_and_wait(); }

std::uint64_t exchange(std::uint64_t bits, int source) {
    [[maybe_unused]] const Hidden hidden;
    auto& slots = warp->slots[exchanges++ % 2];
    slots[threadIdx.x % 32] = bits;
    warp->exchange.arrive_and_wait();
    return slots[source];
}

void run_blocks(unsigned blocks, unsigned threads, void (*body)(void*), void* data) {
    std::barrier<> all(threads);
    std::vector<Warp> warps(threads / 32);
    auto run = [&](unsigned thread) {
        threadIdx.x = thread;
        blockDim.x = threads;
        warp = &warps[thread / 32];
        block = &all;
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
            body(data);
            all.arrive_and_wait();
        }
    };
    std::vector<std::thread> running;
    for (unsigned thread = 0; thread < threads; thread++) running.emplace_back(run, thread);
    for (auto& thread : running) thread.join();
}
