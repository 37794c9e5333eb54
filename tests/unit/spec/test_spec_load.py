"""Files → ClusterSpec."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kilocard.core.errors import SpecError
from kilocard.spec.load import LARGEST, Digests, digests_of, load
from kilocard.spec.model import ReplicaRange

POOL = "pools: {p: {engine: vllm, model: m}}\n"


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path: Path | str, **env: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(path, env=env)
    return str(caught.value).splitlines()


def test_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, "c.yaml", POOL)
    assert load(path) == load(str(path))
    assert list(load(path).models) == ["p"]


def test_json_is_yaml_and_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    path = write(tmp_path, "c.json", b'\xef\xbb\xbf{"pools": {"p": {"engine": "vllm", "model": "m"}}}')
    assert load(path).pools["p"].model == "m"


def test_problems_say_file_and_line(tmp_path: Path) -> None:
    path = write(
        tmp_path, "c.yaml", "pools:\n  p:\n    engine: vllm\n    modle: m\n    engine: sglang\n    drain: ${D}\n"
    )
    assert refused(path) == [
        f"{path}:2: pools.p.model: is missing, and vllm has to load something; write a hub name, a folder or a file; "
        "for replicas that run already add endpoints",
        f"{path}:3: pools.p.engine: is there twice (first in line 3, again in line 5); remove one, or merge them",
        f"{path}:4: pools.p.modle: is no known key here; did you mean model?",
        f"{path}:6: pools.p.drain: uses ${{D}}, which is not set; set it, or write ${{D:-default}}",
    ]


def test_the_environment_fills_in_text_and_numbers(tmp_path: Path) -> None:
    keys = "model: '${M}', version: '${V}', replicas: '${N:-3}', drain: '${D}', args: {x: '${N:-3}'}"
    pool = load(
        write(tmp_path, "c.yaml", f"pools: {{p: {{engine: vllm, {keys}}}}}"), env={"M": "no", "V": "0.10", "D": "5m"}
    ).pools["p"]
    assert (pool.model, pool.version, pool.replicas, pool.drain.grace) == ("no", "0.10", ReplicaRange(3, 3), 300)
    assert pool.args == {"x": 3}


def test_a_version_is_text_as_it_is_written(tmp_path: Path) -> None:
    path = write(tmp_path, "c.yaml", "pools: {p: {engine: vllm, model: 70, version: 0.10}}")
    assert (load(path).pools["p"].version, load(path).pools["p"].model) == ("0.10", "70")


def test_extends(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(
        tmp_path,
        "base.yaml",
        "gateway: {listen: 0.0.0.0:9000, drain: 5m}\n"
        "pools:\n  a: {engine: vllm, model: m, args: {x: 1, y: 2}, version: 0.10}\n  b: {engine: vllm, model: m}\n",
    )
    path = write(
        tmp_path / "sub",
        "c.yaml",
        "extends: ../base.yaml\ngateway: {drain: null}\npools: {a: {args: {y: 3}, version: 1.20}, b: null}\n",
    )
    spec = load(path)
    assert (spec.gateway.listen, spec.gateway.drain) == ("0.0.0.0:9000", 120.0)
    assert list(spec.pools) == ["a"]
    assert (spec.pools["a"].args, spec.pools["a"].version) == ({"x": 1, "y": 3}, "1.20")


def test_problems_in_the_extended_file_name_that_file(tmp_path: Path) -> None:
    base = write(tmp_path, "base.yaml", "pools:\n  a: {engine: vlm, model: m}\n")
    path = write(tmp_path, "c.yaml", "extends: base.yaml\ngatway: {}\n")
    assert refused(path) == [
        f'{base}:2: pools.a.engine: is "vlm", which is not known; did you mean vllm?',
        f"{path}:2: gatway: is no known key here; did you mean gateway?",
    ]


def test_extends_in_a_circle(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "extends: b.yaml")
    path = write(tmp_path, "b.yaml", "extends: ./a.yaml")
    (found,) = refused(path)
    assert "extends: goes round in a circle" in found


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "b.yaml")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "a.yaml")
    (found,) = refused(write(tmp_path, "c.yaml", "extends: a.yaml"))
    assert "a.yaml: cluster file: can't be read" in found


@pytest.mark.parametrize("name", ["5", "[a]", "''", '"a\\0b"'])
def test_extends_wants_a_file_name(tmp_path: Path, name: str) -> None:
    (found,) = refused(write(tmp_path, "c.yaml", f"extends: {name}"))
    assert "c.yaml:1: extends: is no file name; write extends: other.yaml" in found


def test_extending_nothing_much(tmp_path: Path) -> None:
    path = write(tmp_path, "c.yaml", "extends: empty.yaml\n" + POOL)
    write(tmp_path, "empty.yaml", "")
    assert list(load(path).pools) == ["p"]
    assert "no such file" in refused(write(tmp_path, "d.yaml", "extends: missing.yaml"))[0]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    write(tmp_path, "cluster.yaml", POOL)
    assert refused(tmp_path / "clutser.yaml") == [
        f"{tmp_path}/clutser.yaml: cluster file: there is no such file; {tmp_path} has cluster.yaml"
    ]
    assert "there is no directory" in refused(tmp_path / "x" / "c.yaml")[0]
    assert "is a directory; name the file in it" in refused(tmp_path)[0]
    assert "can't be read" in refused("a\0b")[0]


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "open", denied)  # root may read everything, so chmod would prove nothing
    assert "may not be read by this user; chmod it" in refused(tmp_path / "c.yaml")[0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "cluster file: is empty; start with pools:"),
        (b"- a\n", "cluster file: is a list, not a mapping"),
        (b"a: 1\nb: \xff\n", "c.yaml:2: cluster file: is not UTF-8 (byte 0xff); save it as UTF-8"),
        ("a: 1".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        (b"pools:\n\tp: 1\n", "c.yaml:2: cluster file: is indented with a tab; use spaces"),
        (b"\x00" * 100, "has a character that YAML forbids"),
        (b"#" * (LARGEST + 1), "is larger than 16 MiB; is it the right file?"),
    ],
)
def test_files_that_are_no_cluster_files(tmp_path: Path, data: bytes, said: str) -> None:
    (found,) = refused(write(tmp_path, "c.yaml", data))
    assert said in found


def test_a_thousand_endpoints_keep_their_lines(tmp_path: Path) -> None:
    rows = "".join(f"      - http://10.0.{n // 250}.{n % 250}:8000\n" for n in range(1000))
    path = write(tmp_path, "c.yaml", f"pools:\n  p:\n    engine: external\n    endpoints:\n{rows}      - http://a:x\n")
    (found,) = refused(path)
    assert found.startswith(f'{path}:1005: pools.p.endpoints[1000]: has the port "x"')


def test_a_pipe_is_read_to_its_end_and_is_no_news_afterwards() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as writer:
        writer.write(b"pools: {p: {engine: vllm, endpoints: [")
        writer.flush()
        writer.write(b"'http://127.0.0.1:8000']}}\n")
    digests: Digests = {}
    name = f"/dev/fd/{reading}"
    try:
        assert list(load(name, digests=digests).pools) == ["p"]
        assert digests_of(digests) == digests == {name: ""}, "a pipe gives its content once"
    finally:
        os.close(reading)


@pytest.mark.parametrize("extended", [False, True])
def test_a_pipe_that_nobody_writes_to_is_not_waited_for_while_something_runs(tmp_path: Path, extended: bool) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    path = write(tmp_path, "c.yaml", "extends: pipe.yaml\n" + POOL) if extended else tmp_path / "pipe.yaml"
    digests: Digests = {}
    with pytest.raises(SpecError, match=r"pipe\.yaml: .*is a pipe or a device.*name a file"):
        load(path, digests=digests, pipes=False)
    assert digests_of(digests) == digests, "it is complained of once, not at each look"
