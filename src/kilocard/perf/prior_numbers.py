"""The numbers of `priors.py`, as `python -m tests.ground_truth.speed_fit ENGINE` found them, rounded to three digits.

Fitted on the curves of AIConfigurator's silicon table (Hopper and Blackwell GPUs, 1 to 8 of them) and, for vLLM, on
open-loop runs of 0.15.1 and 0.23.0 on H100s; `request_s` and `steps_ahead` are set by hand. `evidence` is of each half
of the curves with numbers that only the other half gave. vLLM 0.11 to 0.23, SGLang 0.5, TensorRT-LLM 1.0 to 1.3: one
set for all versions of an engine, since no version has enough models of its own.
"""

from __future__ import annotations

from kilocard.perf.priors import Evidence, Generation, Prior, Reach

VLLM = Prior(
    Reach(
        bandwidth=0.921,
        experts={4: 1.01, 8: 0.613, 16: 0.7},
        cache=0.773,
        latent=1.97,
        products={
            (False, 16): 0.697, (False, 8): 0.75, (False, 4): 0.315,
            (True, 16): 0.187, (True, 8): 0.142, (True, 4): 0.0943,
        },
        attention=0.75,
        step_s=0.00037,
        layer_s=4.55e-05,
        expert_layer_s=1.9e-05,
        latent_layer_s=1.44e-05,
        prefill_layer_s=1.14e-05,
        sequence_s=1.53e-05,
        rounds=0.959,
        link=0.681,
        request_s=0.006,
        steps_ahead=1.0,
        turnaround_steps=2.72,
    ),
    generations={
        "blackwell": Generation(1.1, 1.02, 0.926, 1.03),
        # not fitted: full-load throughputs on A100s, see docs/speed-model.md
        "ampere": Generation(products=0.8),
    },
    evidence={
        ("blackwell", "dense"): Evidence(60, 0.068, 0.178),
        ("blackwell", "experts"): Evidence(208, 0.120, 0.243),
        ("hopper", "dense"): Evidence(211, 0.071, 0.288),
        ("hopper", "experts"): Evidence(180, 0.111, 0.396),
    },
)  # fmt: skip

SGLANG = Prior(
    Reach(
        bandwidth=0.93,
        experts={4: 0.796, 8: 0.825, 16: 0.781},
        cache=0.93,
        latent=1.34,
        products={
            (False, 16): 0.8, (False, 8): 0.44, (False, 4): 0.1,
            (True, 16): 0.141, (True, 8): 0.0834, (True, 4): 0.172,
        },
        attention=0.75,
        step_s=0.00116,
        layer_s=3.03e-05,
        expert_layer_s=3.91e-05,
        latent_layer_s=2.63e-05,
        prefill_layer_s=7.99e-05,
        sequence_s=1.9e-05,
        rounds=0.873,
        link=1.6,
        request_s=0.006,
        steps_ahead=0.0,
        turnaround_steps=23.6,
    ),
    generations={
        "blackwell": Generation(1.1, 1.06, 0.56, 0.828),
        # not fitted: full-load throughputs on A100s, see docs/speed-model.md
        "ampere": Generation(products=0.8),
    },
    evidence={
        ("blackwell", "experts"): Evidence(245, 0.121, 0.401),
        ("hopper", "dense"): Evidence(76, 0.052, 0.229),
        ("hopper", "experts"): Evidence(67, 0.187, 0.366),
    },
)  # fmt: skip

TRTLLM = Prior(
    Reach(
        bandwidth=0.93,
        experts={4: 0.904, 8: 0.963, 16: 0.7},
        cache=0.745,
        latent=1.78,
        products={
            (False, 16): 0.611, (False, 8): 0.493, (False, 4): 0.1,
            (True, 16): 0.196, (True, 8): 0.195, (True, 4): 0.223,
        },
        attention=0.75,
        step_s=0.000633,
        layer_s=3.78e-05,
        expert_layer_s=8.76e-06,
        latent_layer_s=4.85e-05,
        prefill_layer_s=0.00021,
        sequence_s=7.14e-06,
        rounds=0.835,
        link=1.02,
        request_s=0.006,
        steps_ahead=0.0,
        turnaround_steps=10.1,
    ),
    generations={
        "blackwell": Generation(1.1, 0.957, 1.6, 0.679),
        # not fitted: full-load throughputs on A100s, see docs/speed-model.md
        "ampere": Generation(products=0.8),
    },
    evidence={
        ("blackwell", "dense"): Evidence(75, 0.077, 0.215),
        ("blackwell", "experts"): Evidence(202, 0.120, 0.412),
        ("hopper", "dense"): Evidence(310, 0.067, 0.163),
        ("hopper", "experts"): Evidence(200, 0.111, 0.313),
    },
)  # fmt: skip

#: by the engine's name
PRIORS = {"vllm": VLLM, "sglang": SGLANG, "trtllm": TRTLLM}
