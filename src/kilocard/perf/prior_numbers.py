"""The numbers of `priors.py`, as `python -m tests.ground_truth.speed_fit ENGINE` found them, rounded to three digits.

Fitted on the curves of AIConfigurator's silicon table (Hopper and Blackwell GPUs, 1 to 8 of them) and, for vLLM, on
open-loop runs of 0.15.1 and 0.23.0 on H100s; `evidence` is of each half of the curves with numbers that only the other
half gave. vLLM 0.11 to 0.23, SGLang 0.5, TensorRT-LLM 1.0 to 1.3: one set for all versions of an engine, since no
version has enough models of its own.
"""

from __future__ import annotations

from kilocard.perf.priors import Evidence, Generation, Prior, Reach

VLLM = Prior(
    Reach(
        bandwidth=0.909,
        experts={4: 0.986, 8: 0.59, 16: 0.7},
        cache=0.93,
        latent=2.06,
        products={
            (False, 16): 0.649, (False, 8): 0.75, (False, 4): 0.243,
            (True, 16): 0.199, (True, 8): 0.114, (True, 4): 0.0832,
        },
        attention=0.75,
        step_s=0.0002,
        layer_s=4.82e-05,
        expert_layer_s=1.87e-05,
        latent_layer_s=1.77e-05,
        prefill_layer_s=0.0,
        sequence_s=1.62e-05,
        rounds=0.969,
        link=0.819,
        request_s=0.006,
        steps_ahead=1.0,
        turnaround_steps=0.0,
    ),
    generations={
        "blackwell": Generation(1.1, 1.25, 1.12, 0.936),
        # not fitted: full-load throughputs on A100s, see docs/speed-model.md
        "ampere": Generation(products=0.8),
    },
    evidence={
        ("blackwell", "dense"): Evidence(60, 0.068, 0.203),
        ("blackwell", "experts"): Evidence(200, 0.134, 0.287),
        ("hopper", "dense"): Evidence(206, 0.062, 0.231),
        ("hopper", "experts"): Evidence(179, 0.109, 0.311),
    },
)  # fmt: skip

SGLANG = Prior(
    Reach(
        bandwidth=0.93,
        experts={4: 0.861, 8: 0.784, 16: 0.843},
        cache=0.881,
        latent=0.894,
        products={
            (False, 16): 0.8, (False, 8): 0.48, (False, 4): 0.1,
            (True, 16): 0.107, (True, 8): 0.0745, (True, 4): 0.164,
        },
        attention=0.75,
        step_s=0.000605,
        layer_s=3.78e-05,
        expert_layer_s=4.31e-05,
        latent_layer_s=2.69e-05,
        prefill_layer_s=0.0,
        sequence_s=1.91e-05,
        rounds=0.734,
        link=1.6,
        request_s=0.006,
        steps_ahead=0.0,
        turnaround_steps=0.0,
    ),
    generations={
        "blackwell": Generation(1.1, 0.946, 0.734, 0.909),
        # not fitted: full-load throughputs on A100s, see docs/speed-model.md
        "ampere": Generation(products=0.8),
    },
    evidence={
        ("blackwell", "experts"): Evidence(238, 0.115, 0.406),
        ("hopper", "dense"): Evidence(76, 0.097, 0.370),
        ("hopper", "experts"): Evidence(67, 0.223, 0.384),
    },
)  # fmt: skip

TRTLLM = Prior(
    Reach(
        bandwidth=0.911,
        experts={4: 0.824, 8: 1.05, 16: 0.7},
        cache=0.814,
        latent=1.39,
        products={
            (False, 16): 0.568, (False, 8): 0.433, (False, 4): 0.1,
            (True, 16): 0.219, (True, 8): 0.0555, (True, 4): 0.7,
        },
        attention=0.75,
        step_s=0.000585,
        layer_s=3.46e-05,
        expert_layer_s=9.3e-06,
        latent_layer_s=3.17e-05,
        prefill_layer_s=0.0,
        sequence_s=1.65e-05,
        rounds=1.15,
        link=1.01,
        request_s=0.006,
        steps_ahead=0.0,
        turnaround_steps=0.0,
    ),
    generations={
        "blackwell": Generation(1.1, 0.879, 1.6, 0.6),
        # not fitted: full-load throughputs on A100s, see docs/speed-model.md
        "ampere": Generation(products=0.8),
    },
    evidence={
        ("blackwell", "dense"): Evidence(75, 0.078, 0.220),
        ("blackwell", "experts"): Evidence(202, 0.143, 0.375),
        ("hopper", "dense"): Evidence(310, 0.086, 0.222),
        ("hopper", "experts"): Evidence(200, 0.106, 0.309),
    },
)  # fmt: skip

#: by the engine's name
PRIORS = {"vllm": VLLM, "sglang": SGLANG, "trtllm": TRTLLM}
