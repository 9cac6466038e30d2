// Log evidence and its gradients by scaled forward-backward, see layout.cu for how the work is divided.
//
// A document for which scaled numbers will not do is done again in log space and double precision.

#include "layout.cu"

// Below this scale (or on NaN and infinities) a document is done again in log space. Should a path that
// matters have underflowed on the way forward, its backward message overflows on the way back, and that is
// seen too.
constexpr double SMALLEST = 1e-30;

// Rows to probabilities: softmax, or a NaN for a negative probability. Rows beyond L become 0, a row of -inf
// only NaN.
__device__ inline void to_probabilities(Token& token, int logits) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        Real* row = token.row[r];
        if (logits) {
            Real top = row[0], total = 0;
#pragma unroll
            for (int c = 1; c < COLS; c++) top = larger(top, row[c]);
            top = group_max(top);
#pragma unroll
            for (int c = 0; c < COLS; c++) total += row[c] = exp(row[c] - top);
            const Real scale = 1 / group_sum(total);
#pragma unroll
            for (int c = 0; c < COLS; c++) row[c] = row_of(r) < L ? row[c] * scale : Real(0);
        } else {
#pragma unroll
            for (int c = 0; c < COLS; c++) row[c] = row[c] < 0 ? Real(INF - INF) : row[c];
        }
    }
}

// Log emissions to emissions divided by their maximum, whose logarithm is returned.
__device__ inline Real to_emission(Token& token) {
    Real top = token.emission[0];
#pragma unroll
    for (int c = 1; c < COLS; c++) top = larger(top, token.emission[c]);
    top = group_max(top);
#pragma unroll
    for (int c = 0; c < COLS; c++) token.emission[c] = exp(token.emission[c] - top);
    return top;
}

// Sums each column over all rows: over the groups of a warp, then over the warps.
__device__ inline void sum_over_groups(Real (&column)[COLS], int buffer) {
#pragma unroll
    for (int c = 0; c < COLS; c++)
        for (int o = GROUP; o < 32; o *= 2) column[c] += __shfl_xor_sync(FULL, column[c], o);
    if constexpr (WARPS > 1) {
        __shared__ Real part[2][WARPS][L];
#pragma unroll
        for (int c = 0; c < COLS; c++)
            if (column_of(c) < L) part[buffer][group_of_thread()][column_of(c)] = column[c];
        sync();
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            column[c] = 0;
            for (int w = 0; w < WARPS && column_of(c) < L; w++) column[c] += part[buffer][w][column_of(c)];
        }
    }
}

// alpha_t[j] = (sum_i alpha_{t-1}[i] P_t[i, j]) e_t[j] / scale_t goes into `filtered`; the log evidence is
// the sum of the log scales. Returns NaN where scaled numbers will not do, else leaves the last token's alpha
// in `alpha`.
__device__ inline double scaled_forward(const Chain& chain, Real* filtered, Real (&alpha)[COLS]) {
#pragma unroll
    for (int c = 0; c < COLS; c++) alpha[c] = initial_of(chain, column_of(c));
    double log_scale = 0, product = 1;
    Token next = load(chain, chain.begin);
    for (Index n = chain.begin; n < chain.end; n++) {
        Token token = next;
        if (n + 1 < chain.end) next = load(chain, n + 1);
        call_into_cache(chain, n + AHEAD);
        to_probabilities(token, chain.logits);
        const Real top = to_emission(token);
        Real raw[COLS] = {};
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const Real a = of_row(alpha, r);
#pragma unroll
            for (int c = 0; c < COLS; c++) raw[c] += a * token.row[r][c];
        }
        sum_over_groups(raw, n & 1);
        Real total = 0;
#pragma unroll
        for (int c = 0; c < COLS; c++) total += raw[c] *= token.emission[c];
        total = group_sum(total);
        if (!(total > Real(SMALLEST) && total < Real(INF))) return INF - INF;
        const Real scale = 1 / total;
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            alpha[c] = raw[c] * scale;
            if (group_of_thread() == 0 && column_of(c) < L) filtered[n * L + column_of(c)] = alpha[c];
        }
        log_scale += top;
        product *= total;
        if (product < 1e-200 || product > 1e200) {
            log_scale += log(product);
            product = 1;
        }
    }
    return log_scale + log(product);
}

// beta_{t-1}[i] = sum_j P_t[i, j] e_t[j] beta_t[j] / scale, with the scale that makes sum_i alpha_{t-1}[i]
// beta_{t-1}[i] = 1. Starts from the last token's alpha and replaces alpha in `filtered` by the marginals
// alpha beta. False where scaled numbers will not do.
__device__ inline bool scaled_backward(const Chain& chain, Real (&alpha)[COLS], Real* filtered,
                                       Real* to_initial, Real* to_transition) {
    __shared__ Real onward[2][L];
    Real beta[COLS];
#pragma unroll
    for (int c = 0; c < COLS; c++) beta[c] = column_of(c) < L ? 1 : 0;
    Token next = load(chain, chain.end - 1);
    for (Index n = chain.end - 1; n >= chain.begin; n--) {
        Token token = next;
        Real before[COLS];  // alpha of the token before; read ahead of the sync below, after which its place
                            // may be overwritten
#pragma unroll
        for (int c = 0; c < COLS; c++)
            before[c] = n == chain.begin   ? initial_of(chain, column_of(c))
                        : column_of(c) < L ? filtered[(n - 1) * L + column_of(c)]
                                           : Real(0);
        if (n > chain.begin) next = load(chain, n - 1);
        call_into_cache(chain, n - AHEAD);
        to_probabilities(token, chain.logits);
        to_emission(token);
        Real message[COLS], from[ROWS];
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            if (group_of_thread() == 0 && column_of(c) < L)
                filtered[n * L + column_of(c)] = alpha[c] * beta[c];
            message[c] = token.emission[c] * beta[c];
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            from[r] = 0;
#pragma unroll
            for (int c = 0; c < COLS; c++) from[r] += token.row[r][c] * message[c];
            from[r] = group_sum(from[r]);
            if (lane_of_group() == 0 && row_of(r) < L) onward[n & 1][row_of(r)] = from[r];
        }
        sync();
        Real total = 0;
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            beta[c] = column_of(c) < L ? onward[n & 1][column_of(c)] : Real(0);
            total += before[c] * beta[c];
        }
        total = group_sum(total);
        if (!(total > Real(SMALLEST) && total < Real(INF))) return false;
        const Real scale = 1 / total;
        if (to_transition) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const Real weight = of_row(before, r) * scale;
#pragma unroll
                for (int c = 0; c < COLS; c++) {
                    const Real p = token.row[r][c];
                    const Real gradient = chain.logits ? weight * (p * message[c]) - p * (weight * from[r])
                                                       : weight * message[c];
                    if (row_of(r) < L && column_of(c) < L)
                        to_transition[(n * L + row_of(r)) * L + column_of(c)] = gradient;
                }
            }
        }
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            alpha[c] = before[c];
            beta[c] *= scale;
        }
    }
#pragma unroll
    for (int c = 0; c < COLS; c++)
        if (group_of_thread() == 0 && column_of(c) < L) to_initial[column_of(c)] = beta[c];
    return true;
}

__device__ inline double log_sum(double a, double b) {
    if (a == -INF) return b;
    if (b == -INF) return a;
    return a > b ? a + log1p(exp(b - a)) : b + log1p(exp(a - b));
}

// log of the sum over a row of exp(logits); 0 for probabilities.
__device__ inline double log_normaliser(const Chain& chain, Index n, int from) {
    double total = -INF;
    for (int to = 0; chain.logits && to < L; to++)
        total = log_sum(total, chain.transition[(n * L + from) * L + to]);
    return chain.logits ? total : 0;
}

__device__ inline double log_transition(const Chain& chain, Index n, int from, int to, double normaliser) {
    const double x = chain.transition[(n * L + from) * L + to];
    return chain.logits ? x - normaliser : log(x);
}

// The same in log space and double precision, for the documents that scaled numbers cannot do: slow, and
// nothing underflows. `filtered` holds log alpha less its maximum in between. One thread a label; returns the
// log evidence, -inf or NaN.
__device__ inline double log_space(const Chain& chain, Real* filtered, Real* to_initial,
                                   Real* to_transition) {
    __shared__ double vector[2][L], normaliser[L];
    const int label = threadIdx.x;
    if (label < L) vector[chain.begin & 1][label] = log(double(chain.initial[label]));
    for (Index n = chain.begin; n < chain.end; n++) {
        const double *before = vector[n & 1], *now = vector[(n + 1) & 1];
        if (label < L) normaliser[label] = log_normaliser(chain, n, label);
        sync();
        if (label < L) {
            double total = -INF;
            for (int from = 0; from < L; from++)
                if (before[from] !=
                    -INF)  // what stands in the row of a label that no path reaches does not matter
                    total = log_sum(total,
                                    before[from] + log_transition(chain, n, from, label, normaliser[from]));
            vector[(n + 1) & 1][label] = total + chain.log_emission[n * L + label];
        }
        sync();
        double top = -INF;
        for (int k = 0; k < L; k++) top = now[k] > top ? now[k] : top;
        if (label < L) filtered[n * L + label] = Real(now[label] - top);
    }
    double evidence = -INF;
    for (int k = 0; k < L; k++) evidence = log_sum(evidence, vector[chain.end & 1][k]);
    if (!(evidence > -INF && evidence < INF)) return evidence == -INF ? -INF : INF - INF;

    sync();
    if (label < L) vector[chain.end & 1][label] = 0;
    double weight = -INF;  // log sum of alpha beta at the token in hand
    for (int k = 0; k < L; k++) weight = log_sum(weight, filtered[(chain.end - 1) * L + k]);
    for (Index n = chain.end - 1; n >= chain.begin; n--) {
        const double *after = vector[(n + 1) & 1], *now = vector[n & 1];
        if (label < L) normaliser[label] = log_normaliser(chain, n, label);
        sync();
        if (label < L) {
            double total = -INF;
            for (int to = 0; to < L; to++)
                total = log_sum(total, log_transition(chain, n, label, to, normaliser[label]) +
                                           chain.log_emission[n * L + to] + after[to]);
            vector[n & 1][label] = total != total ? -INF : total;
            filtered[n * L + label] = Real(exp(filtered[n * L + label] + after[label] - weight));
        }
        sync();
        const Real* before = n == chain.begin ? nullptr : filtered + (n - 1) * L;
        weight = -INF;
        for (int k = 0; k < L; k++)
            weight = log_sum(weight, (before ? before[k] : log(double(chain.initial[k]))) + now[k]);
        for (int k = label; to_transition && k < L * L; k += THREADS) {
            const int from = k / L, to = k % L;
            const double alpha = before ? before[from] : log(double(chain.initial[from]));
            const double p = log_transition(chain, n, from, to, normaliser[from]);
            const double step = alpha + chain.log_emission[n * L + to] + after[to] - weight;
            const double gradient =
                chain.logits ? exp(step + p) - exp(p + alpha + now[from] - weight) : exp(step);
            to_transition[n * L * L + k] = Real(gradient == gradient ? gradient : 0);
        }
        sync();
    }
    if (label < L) to_initial[label] = Real(exp(vector[chain.begin & 1][label] - weight));
    return evidence;
}

// Log evidence (B,) and the gradients to initial (B, L), transition (N, L, L; null if not wanted) and log
// emission (N, L).
extern "C" __global__ void __launch_bounds__(THREADS)
    forward_backward(const Real* initial, const Real* transition, const Real* log_emission,
                     const Index* offsets, int logits, double* log_evidence, Real* to_initial,
                     Real* to_transition, Real* to_log_emission) {
    const Chain chain = chain_of_block(initial, transition, log_emission, offsets, logits);
    to_initial += Index(blockIdx.x) * L;
    double evidence = 0;
    if (chain.begin < chain.end) {
        Real alpha[COLS];
        evidence = scaled_forward(chain, to_log_emission, alpha);
        sync();
        if (evidence != evidence ||
            !scaled_backward(chain, alpha, to_log_emission, to_initial, to_transition))
            evidence = log_space(chain, to_log_emission, to_initial, to_transition);
    }
    if (threadIdx.x == 0) log_evidence[blockIdx.x] = evidence;
    if (chain.begin < chain.end && evidence > -INF) return;
    sync();
    for (int k = threadIdx.x; k < L; k += THREADS) to_initial[k] = 0;
    for (Index k = chain.begin * L + threadIdx.x; k < chain.end * L; k += THREADS) to_log_emission[k] = 0;
    for (Index k = chain.begin * L * L + threadIdx.x; to_transition && k < chain.end * L * L; k += THREADS)
        to_transition[k] = 0;
}
