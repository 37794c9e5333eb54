"""The numbers of `priors.py`, as `python -m tests.ground_truth.speed_fit` found them, rounded to three digits.

Fitted on the curves of AIConfigurator's silicon table (Hopper and Blackwell GPUs, 1 to 8 of them) and, for vLLM, on
open-loop runs of 0.15.1 and 0.23.0 on H100s. One set for all three engines is fitted first; vLLM's and SGLang's own
numbers differ from it where their rows insist, TensorRT-LLM's are fitted for themselves. `request_s` and `steps_ahead`
are set by hand. `evidence` is of models that were left out of the fit, in classes of 40 rows or more. vLLM 0.11 to
0.23, SGLang 0.5, TensorRT-LLM 1.0 to 1.3: one set for all versions, since no version has enough models of its own.
"""

from __future__ import annotations

from dataclasses import replace

from kilocard.perf.priors import Evidence, Generation, Prior, Reach

#: not fitted: full-load throughputs on A100s, see docs/speed-model.md
AMPERE = Generation(products=0.8)

VLLM = Prior(
    Reach(
        bandwidth=0.93,
        experts={4: 0.967, 8: 0.651, 16: 0.643},
        cache=0.93,
        latent=1.54,
        products={
            (False, 16): 0.68, (False, 8): 0.55, (False, 4): 0.225,
            (True, 16): 0.165, (True, 8): 0.16, (True, 4): 0.0943,
        },
        attention=0.566,
        step_s=0.00074,
        layer_s=3.69e-05,
        expert_layer_s=2.85e-05,
        latent_layer_s=1.49e-05,
        prefill_layer_s=8.45e-05,
        sequence_s=1.12e-05,
        rounds=0.969,
        link=0.811,
        request_s=0.006,
        steps_ahead=1.0,
        turnaround_steps=2.6,
    ),
    generations={
        "blackwell": Generation(1.1, 0.6, 0.886, 0.882),
        "ampere": AMPERE,
    },
    evidence={
        ("blackwell", "dense"): Evidence(60, 1, 0.083, 0.169),
        ("blackwell", "experts"): Evidence(208, 3, 0.147, 0.346),
        ("hopper", "dense"): Evidence(211, 3, 0.068, 0.327),
        ("hopper", "experts"): Evidence(180, 4, 0.195, 0.496),
    },
)  # fmt: skip

SGLANG = Prior(
    # what the two share is the common set's
    replace(
        VLLM.reach,
        experts={4: 0.886, 8: 0.737, 16: 0.664},
        cache=0.874,
        products={**VLLM.reach.products, (False, 16): 0.8},
        layer_s=3.92e-05,
        steps_ahead=0.0,
        turnaround_steps=24.4,
    ),
    generations={
        "blackwell": Generation(1.1, 0.6, 0.832, 0.939),
        "ampere": AMPERE,
    },
    evidence={
        ("blackwell", "experts"): Evidence(195, 3, 0.113, 0.358),
        ("hopper", "dense"): Evidence(76, 2, 0.124, 0.258),
        ("hopper", "experts"): Evidence(68, 4, 0.175, 0.344),
    },
)  # fmt: skip

TRTLLM = Prior(
    Reach(
        bandwidth=0.93,
        experts={4: 0.866, 8: 0.989, 16: 0.7},
        cache=0.624,
        latent=1.6,
        products={
            (False, 16): 0.595, (False, 8): 0.495, (False, 4): 0.167,
            (True, 16): 0.186, (True, 8): 0.235, (True, 4): 0.0945,
        },
        attention=0.75,
        step_s=0.000457,
        layer_s=3.91e-05,
        expert_layer_s=1.07e-05,
        latent_layer_s=3.33e-05,
        prefill_layer_s=0.000217,
        sequence_s=4.33e-06,
        rounds=0.94,
        link=1.05,
        request_s=0.006,
        steps_ahead=0.0,
        turnaround_steps=9.6,
    ),
    generations={
        "blackwell": Generation(1.1, 0.825, 1.27, 0.6),
        "ampere": AMPERE,
    },
    evidence={
        ("blackwell", "dense"): Evidence(75, 2, 0.153, 0.342),
        ("blackwell", "experts"): Evidence(162, 2, 0.253, 0.449),
        ("hopper", "dense"): Evidence(310, 3, 0.105, 0.248),
        ("hopper", "experts"): Evidence(200, 3, 0.196, 0.359),
    },
)  # fmt: skip

#: by the engine's name
PRIORS = {"vllm": VLLM, "sglang": SGLANG, "trtllm": TRTLLM}
