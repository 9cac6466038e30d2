// The most probable path (Viterbi), see layout.cu for how the work is divided.

#include "layout.cu"

constexpr int CHUNK = 32;  // tokens whose back pointers are staged at a time

// Rows to log probabilities. A row that is no distribution (NaN, +inf, or -inf only) becomes NaN.
__device__ inline void to_log_probabilities(Token& token, int logits) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        Real* row = token.row[r];
        if (logits) {
            Real top = row[0], total = 0;
#pragma unroll
            for (int c = 1; c < COLS; c++) top = larger(top, row[c]);
            top = group_max(top);
#pragma unroll
            for (int c = 0; c < COLS; c++) total += exp(row[c] - top);
            const Real normaliser = top + log(group_sum(total));
#pragma unroll
            for (int c = 0; c < COLS; c++) row[c] -= normaliser;
        } else {
#pragma unroll
            for (int c = 0; c < COLS; c++) row[c] = log(row[c]);
        }
    }
}

// Whether a candidate replaces the best so far: NaN first and for good, then the larger, then the lower
// label.
__device__ inline bool better(Real value, int label, Real best, int best_label) {
    if (best != best) return false;
    return value > best || value != value || (value == best && label < best_label);
}

__device__ inline void take_better(Real value, int label, Real& best, int& best_label) {
    if (better(value, label, best, best_label)) {
        best = value;
        best_label = label;
    }
}

// The best predecessor of each column over all rows: over the groups of a warp, then over the warps.
__device__ inline void best_over_groups(Real (&best)[COLS], int (&from)[COLS], int buffer) {
#pragma unroll
    for (int c = 0; c < COLS; c++)
        for (int o = GROUP; o < 32; o *= 2) {
            const Real other = __shfl_xor_sync(FULL, best[c], o);
            const int other_from = __shfl_xor_sync(FULL, from[c], o);
            take_better(other, other_from, best[c], from[c]);
        }
    if constexpr (WARPS > 1) {
        __shared__ Real part[2][WARPS][L];
        __shared__ unsigned char part_from[2][WARPS][L];
#pragma unroll
        for (int c = 0; c < COLS; c++)
            if (column_of(c) < L) {
                part[buffer][group_of_thread()][column_of(c)] = best[c];
                part_from[buffer][group_of_thread()][column_of(c)] = from[c];
            }
        sync();
#pragma unroll
        for (int c = 0; c < COLS; c++)
            for (int w = 0; w < WARPS && column_of(c) < L; w++)
                take_better(part[buffer][w][column_of(c)], part_from[buffer][w][column_of(c)], best[c],
                            from[c]);
    }
}

// Follows the back pointers from the last label; they are staged in shared memory, since each step waits for
// the one before.
__device__ inline void trace_back(const Chain& chain, const unsigned char* pointers, int label,
                                  Index* labels) {
    __shared__ unsigned char staged[CHUNK * L];
    for (Index stop = chain.end; stop > chain.begin; stop -= CHUNK) {
        const Index start = stop - CHUNK > chain.begin ? stop - CHUNK : chain.begin;
        for (int k = threadIdx.x; k < (stop - start) * L; k += THREADS) staged[k] = pointers[start * L + k];
        sync();
        for (Index n = stop - 1; threadIdx.x == 0 && n >= start; n--) {
            labels[n] = label;
            label = staged[(n - start) * L + label];
        }
        sync();
    }
}

// The most probable path: labels (N,), log score (B,); pointers (N, L) is scratch.
extern "C" __global__ void __launch_bounds__(THREADS)
    viterbi(const Real* initial, const Real* transition, const Real* log_emission, const Index* offsets,
            int logits, Index* labels, double* log_score, unsigned char* pointers) {
    const Chain chain = chain_of_block(initial, transition, log_emission, offsets, logits);
    Real delta[COLS];  // log score of the best path to each label, less that of the best of all
#pragma unroll
    for (int c = 0; c < COLS; c++) delta[c] = log(initial_of(chain, column_of(c)));
    double score = 0;
    Token next = {};
    if (chain.begin < chain.end) next = load(chain, chain.begin);
    for (Index n = chain.begin; n < chain.end && score > -INF && score < INF; n++) {
        Token token = next;
        if (n + 1 < chain.end) next = load(chain, n + 1);
        call_into_cache(chain, n + AHEAD);
        to_log_probabilities(token, chain.logits);
        Real best[COLS];
        int from[COLS] = {};
#pragma unroll
        for (int c = 0; c < COLS; c++) best[c] = Real(-INF);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const Real before = of_row(delta, r);
#pragma unroll
            for (int c = 0; c < COLS; c++)
                if (row_of(r) < L && before != Real(-INF))
                    take_better(before + token.row[r][c], row_of(r), best[c], from[c]);
        }
        best_over_groups(best, from, n & 1);
        Real top = Real(-INF);
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            if (group_of_thread() == 0 && column_of(c) < L) pointers[n * L + column_of(c)] = from[c];
            delta[c] = best[c] + token.emission[c];
            if (column_of(c) < L) top = larger(top, delta[c]);
        }
        top = group_max(top);
        score += top;
#pragma unroll
        for (int c = 0; c < COLS; c++) delta[c] -= top;
    }
    if (threadIdx.x == 0) log_score[blockIdx.x] = score < INF ? score : INF - INF;
    if (!(score > -INF && score < INF)) {
        for (Index n = chain.begin + threadIdx.x; n < chain.end; n += THREADS) labels[n] = -1;
        return;
    }
    Real best = Real(-INF);
    int label = L;
#pragma unroll
    for (int c = 0; c < COLS; c++)
        if (column_of(c) < L) take_better(delta[c], column_of(c), best, label);
#pragma unroll
    for (int o = 1; o < GROUP; o *= 2) {
        const Real other = __shfl_xor_sync(FULL, best, o);
        const int other_label = __shfl_xor_sync(FULL, label, o);
        take_better(other, other_label, best, label);
    }
    sync();
    trace_back(chain, pointers, label, labels);
}
