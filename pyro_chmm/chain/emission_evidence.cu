// Eq. (10), the log evidence of each token from what the labeling functions said, and its gradients.
//
// Compiled at run time with CHAIN_REAL (float or double), see pyro_chmm/chain/cuda.py. Axes: documents B,
// packed tokens N, LFs K, true label L, observed label L. A weak label of -1 is an abstention; an LF with
// weight 0 says nothing, even where its log emission is -inf. `weight` may be null (all 1). One block per
// document (and LF, for the gradient to the emission). No atomics.

typedef CHAIN_REAL Real;
typedef long long Index;

// The weight with which LF k counts at token n; 0 where it abstained.
__device__ inline Real weight_of(const short* weak_labels, const Real* weight, Index place) {
    if (weak_labels[place] < 0) return 0;
    return weight ? weight[place] : Real(1);
}

// out[n, l] = sum_k weight[n, k] * log_emission[document, k, l, weak_labels[n, k]]
extern "C" __global__ void emission_evidence(const Real* log_emission, const short* weak_labels,
                                             const Real* weight, const Index* offsets, int lfs, int labels,
                                             Real* out) {
    const Index begin = offsets[blockIdx.x], tokens = offsets[blockIdx.x + 1] - begin;
    log_emission += Index(blockIdx.x) * lfs * labels * labels;
    for (Index place = threadIdx.x; place < tokens * labels; place += blockDim.x) {
        const Index n = begin + place / labels;
        const int label = place % labels;
        Real total = 0;
        for (int k = 0; k < lfs; k++) {
            const Real factor = weight_of(weak_labels, weight, n * lfs + k);
            if (factor != 0)
                total += factor * log_emission[(k * labels + label) * labels + weak_labels[n * lfs + k]];
        }
        out[n * labels + label] = total;
    }
}

// to_emission[document, k, l, o] = sum of weight[n, k] * cotangent[n, l] over the tokens n at which LF k said
// o; blocks: B * K
extern "C" __global__ void emission_gradient(const Real* cotangent, const short* weak_labels,
                                             const Real* weight, const Index* offsets, int lfs, int labels,
                                             Real* to_emission) {
    const int document = blockIdx.x / lfs, k = blockIdx.x % lfs;
    to_emission += Index(blockIdx.x) * labels * labels;
    for (int label = threadIdx.x; label < labels; label += blockDim.x) {  // each row is one thread's own
        Real* row = to_emission + label * labels;
        for (int observed = 0; observed < labels; observed++) row[observed] = 0;
        for (Index n = offsets[document]; n < offsets[document + 1]; n++) {
            const Real factor = weight_of(weak_labels, weight, n * lfs + k);
            if (factor != 0) row[weak_labels[n * lfs + k]] += factor * cotangent[n * labels + label];
        }
    }
}

// to_weight[n, k] = sum_l cotangent[n, l] * log_emission[document, k, l, weak_labels[n, k]], 0 where LF k
// abstained
extern "C" __global__ void weight_gradient(const Real* cotangent, const Real* log_emission,
                                           const short* weak_labels, const Index* offsets, int lfs,
                                           int labels, Real* to_weight) {
    const Index begin = offsets[blockIdx.x], tokens = offsets[blockIdx.x + 1] - begin;
    log_emission += Index(blockIdx.x) * lfs * labels * labels;
    for (Index place = threadIdx.x; place < tokens * lfs; place += blockDim.x) {
        const Index n = begin + place / lfs;
        const int k = place % lfs, observed = weak_labels[n * lfs + k];
        Real total = 0;
        for (int label = 0; observed >= 0 && label < labels; label++) {
            const Real factor = cotangent[n * labels + label];
            if (factor != 0) total += factor * log_emission[(k * labels + label) * labels + observed];
        }
        to_weight[n * lfs + k] = total;
    }
}
