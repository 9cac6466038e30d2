// How the labels of one document lie over the threads of its block, and what the chain's kernels share.
//
// One block per document. Compiled at run time for one number of labels: CHAIN_LABELS (1 to 128), CHAIN_WARPS
// (warps per block) and CHAIN_REAL (float or double) are defined by pyro_chmm/chain/cuda.py. The protocol
// (shapes, NaN, -inf, ties) is that of pyro_chmm/chain/backends.py. There are no atomics and every sum has a
// fixed order: results do not change from run to run.
//
// A group of lanes shares the rows (from-labels) group, group + GROUPS, ... of a transition matrix, each lane
// holding the columns (to-labels) lane, lane + GROUP, ... in registers. Vectors over labels lie in "column
// layout": every group of every warp has its own bitwise equal copy, so all threads take the same branches.
// The next token's matrix is loaded while this one is worked on.

#pragma once

typedef CHAIN_REAL Real;
typedef long long Index;

__device__ constexpr int width_of_group(int labels) {
    int width = 1;
    while (width < labels && width < 32) width *= 2;
    return width;
}

constexpr int L = CHAIN_LABELS;
constexpr int WARPS = CHAIN_WARPS;
constexpr int THREADS = 32 * WARPS;
constexpr int GROUP = width_of_group(L);
constexpr int GROUPS = THREADS / GROUP;
constexpr int ROWS = (L + GROUPS - 1) / GROUPS;
constexpr int COLS = (L + GROUP - 1) / GROUP;
constexpr int AHEAD = 4;  // tokens between a step and the one whose memory is called into the L2 cache
constexpr unsigned FULL = 0xffffffffu;
#define INF __longlong_as_double(0x7ff0000000000000ll)

static_assert(1 <= L && L <= 128, "1 to 128 labels");
static_assert(WARPS == 1 || (GROUP == 32 && 32 % WARPS == 0),
              "several warps only where one group is one warp");

__device__ inline int group_of_thread() { return threadIdx.x / GROUP; }
__device__ inline int lane_of_group() { return threadIdx.x % GROUP; }
__device__ inline int row_of(int r) { return group_of_thread() + GROUPS * r; }
__device__ inline int column_of(int c) { return lane_of_group() + GROUP * c; }

// Orders the shared and global memory accesses of the threads of one document.
__device__ inline void sync() {
    if constexpr (WARPS == 1)
        __syncwarp();
    else
        __syncthreads();
}

// The larger of two numbers, NaN if either is.
__device__ inline Real larger(Real a, Real b) { return a > b || a != a ? a : b; }

__device__ inline Real group_max(Real v) {
#pragma unroll
    for (int o = 1; o < GROUP; o *= 2) v = larger(v, __shfl_xor_sync(FULL, v, o));
    return v;
}

__device__ inline Real group_sum(Real v) {
#pragma unroll
    for (int o = 1; o < GROUP; o *= 2) v += __shfl_xor_sync(FULL, v, o);
    return v;
}

// The element of a vector in column layout that belongs to this group's row r.
__device__ inline Real of_row(const Real (&column)[COLS], int r) {
    return __shfl_sync(FULL, column[(GROUPS * r) / GROUP], row_of(r) % GROUP, GROUP);
}

struct Token {
    Real row[ROWS][COLS];  // logits or probabilities
    Real emission[COLS];
};

struct Chain {
    const Real* initial;
    const Real* transition;
    const Real* log_emission;
    Index begin, end;  // packed tokens of this document
    int logits;
};

__device__ inline Chain chain_of_block(const Real* initial, const Real* transition, const Real* log_emission,
                                       const Index* offsets, int logits) {
    return {initial, transition, log_emission, offsets[blockIdx.x], offsets[blockIdx.x + 1], logits};
}

__device__ inline Real initial_of(const Chain& chain, int label) {
    if (label >= L) return 0;
    const Real p = chain.initial[label];
    return p < 0 ? Real(INF - INF) : p;
}

__device__ inline Token load(const Chain& chain, Index n) {
    Token token;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            const bool inside = row_of(r) < L && column_of(c) < L;
            token.row[r][c] = inside ? chain.transition[(n * L + row_of(r)) * L + column_of(c)]
                                     : Real(chain.logits ? -INF : 0);
        }
#pragma unroll
    for (int c = 0; c < COLS; c++)
        token.emission[c] = column_of(c) < L ? chain.log_emission[n * L + column_of(c)] : Real(-INF);
    return token;
}

__device__ inline void call_into_cache(const Real* address) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#else
    (void)address;  // the tests run on the CPU
#endif
}

__device__ inline void call_into_cache(const Chain& chain, Index n) {
    if (n < chain.begin || n >= chain.end) return;
    constexpr int line = 128 / sizeof(Real);
    for (int k = threadIdx.x * line; k < L * L; k += THREADS * line)
        call_into_cache(chain.transition + n * L * L + k);
}
