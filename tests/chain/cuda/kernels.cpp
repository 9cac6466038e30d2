// The chain's CUDA sources, compiled as C++ by the tests: a shared library, or with RACES a program for
// ThreadSanitizer.

#include "shim.h"

int removed_sync = -1;  // which sync() to leave out, in sources that the test of the races has changed

#include "forward_backward.cu"
#include "viterbi.cu"
namespace emission {
#include "emission_evidence.cu"
}

extern "C" int run(const char* name, unsigned blocks, unsigned threads, void** arguments) {
    const struct {
        const char* name;
        void (*launch)(unsigned blocks, unsigned threads, void** arguments);
    } kernels[] = {{"forward_backward", launch<forward_backward>},
                   {"viterbi", launch<viterbi>},
                   {"emission_evidence", launch<emission::emission_evidence>},
                   {"emission_gradient", launch<emission::emission_gradient>},
                   {"weight_gradient", launch<emission::weight_gradient>}};
    for (const auto& kernel : kernels)
        if (strcmp(kernel.name, name) == 0) return kernel.launch(blocks, threads, arguments), 0;
    return 1;
}

#ifdef RACES
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <vector>

// Five documents, so that every pass runs: ordinary (where threads are few, longer than what viterbi stages
// at a time), empty, one token, impossible, and possible only in log space: its last token all but rules out
// the labels that can be reached.
int main(int count, char** arguments) {
    if (count > 1) removed_sync = std::atoi(arguments[1]);
    const long long longest = L < 8 ? 40 : 2;
    const std::vector<long long> offsets{0, longest, longest, longest + 1, longest + 3, longest + 5};
    const unsigned documents = offsets.size() - 1;
    const long long tokens = offsets.back();
    std::vector<Real> initial(L, Real(1) / L), transition(tokens * L * L), log_emission(tokens * L);
    unsigned state = 1;
    auto uniform = [&] { return Real((state = state * 1664525u + 1013904223u) >> 8) / (1 << 24); };
    for (Real& x : transition) x = 2 * uniform() - 1;
    for (Real& x : log_emission) x = -2 * uniform();
    for (int label = 0; label < L; label++) {
        log_emission[(longest + 2) * L + label] = -INFINITY;
        transition[((tokens - 1) * L + label) * L] = -INFINITY;
        if (label > 0) log_emission[(tokens - 1) * L + label] -= 100;
    }

    std::vector<double> evidence(documents), score(documents);
    std::vector<Real> to_initial(documents * L), to_transition(tokens * L * L), to_emission(tokens * L);
    std::vector<long long> labels(tokens);
    std::vector<unsigned char> pointers(tokens * L);
    int logits = 1;
    auto call = [&](const char* name, auto... outputs) {
        auto inputs = std::tuple(initial.data(), transition.data(), log_emission.data(), offsets.data());
        std::apply(
            [&](auto&... in) {
                void* parts[] = {(void*)&in..., (void*)&logits, (void*)&outputs...};
                run(name, documents, THREADS, parts);
            },
            inputs);
    };
    call("forward_backward", evidence.data(), to_initial.data(), to_transition.data(), to_emission.data());
    call("viterbi", labels.data(), score.data(), pointers.data());
    for (unsigned document = 0; document < documents; document++)
        std::printf("%.9g %.9g\n", evidence[document], score[document]);
}
#endif
