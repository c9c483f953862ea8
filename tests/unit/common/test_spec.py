"""What may follow --k8s=, and what is said of everything else."""

from __future__ import annotations

import pytest

from moorage.common import typed_json
from moorage.common.errors import UsageError
from moorage.common.spec import Spec, parse

GOOD = [
    ("0", Spec(False, "none")),
    ("1", Spec(True, "kind")),
    ("cluster=kind", Spec(True, "kind")),
    ("version=1.36", Spec(True, "kind", "1.36")),
    ("version=1.0.0", Spec(True, "kind", "1.0.0")),
    ("cluster=kind,version=1.36.3,uplink=pasta", Spec(True, "kind", "1.36.3", "pasta")),
    ("uplink=pasta", Spec(True, "kind", None, "pasta")),
    ("cluster=none", Spec(True, "none")),
    ("cluster=none,uplink=pasta", Spec(True, "none", None, "pasta")),
    ("uplink=slirp4netns,cluster=none", Spec(True, "none", None, "slirp4netns")),
    ("uplink=kernel", Spec(True, "kind", None, "kernel")),
    ("uplink=none", Spec(True, "kind", None, "none")),
    ("nodes=1", Spec(True, "kind", nodes=1)),
    ("nodes=2,require=any", Spec(True, "kind", nodes=2, require="any")),
    ("cluster=none,require=all,nodes=9999", Spec(True, "none", nodes=9999)),
]

NO_PAIR = "is neither 0, 1 nor key=value: write it like --k8s=cluster=none,uplink=pasta"
LIKE = "write it like --k8s=cluster=none,uplink=pasta"
EXAMPLES = "write version=1.36 or version=1.36.3"

BAD = [
    ("", "nothing follows the equals sign: write 0, 1 or key=value, like --k8s=cluster=none,uplink=pasta"),
    ("2", "'2' is neither 0, 1 nor key=value: did you mean nodes=2?"),
    ("100000", f"'100000' {NO_PAIR}"),
    ("01", f"'01' {NO_PAIR}"),
    ("-1", f"'-1' {NO_PAIR}"),
    ("--help", f"'--help' {NO_PAIR}"),
    ("job.sh", f"'job.sh' {NO_PAIR}"),
    ("kind", "'kind' is neither 0, 1 nor key=value: did you mean cluster=kind?"),
    ("yes", "'yes' is neither 0, 1 nor key=value: did you mean 1?"),
    ("OFF", "'OFF' is neither 0, 1 nor key=value: did you mean 0?"),
    ("none", "'none' is neither 0, 1 nor key=value: did you mean cluster=none?"),
    ("pasta", "'pasta' is neither 0, 1 nor key=value: did you mean uplink=pasta?"),
    ("v1.36.3", "'v1.36.3' is neither 0, 1 nor key=value: did you mean version=1.36.3?"),
    ("cluster:none", "'cluster:none' is neither 0, 1 nor key=value: did you mean cluster=none?"),
    ("cluster=none,pasta", "'pasta' is not key=value: did you mean uplink=pasta?"),
    ("cluster=none,2", "'2' is not key=value: did you mean nodes=2?"),
    ("nodes:2", "'nodes:2' is neither 0, 1 nor key=value: did you mean nodes=2?"),
    ("any", "'any' is neither 0, 1 nor key=value: did you mean require=any?"),
    ("cluster=none,yes", "'yes' is not key=value: write it like --k8s=cluster=none,uplink=pasta"),
    ("1,cluster=none", "1 cannot be combined with anything: remove it, or everything else"),
    ("cluster=none,0", "0 cannot be combined with anything: remove it, or everything else"),
    ("node=2", "unknown key 'node': did you mean nodes=2?"),
    ("nodes", "nodes has no value: write nodes=2"),
    ("nodes=", "nodes has no value: write nodes=2"),
    ("nodes=0", "'0' is not a number of nodes: write nodes=2, or leave it out for all"),
    ("nodes=-1", "'-1' is not a number of nodes: write nodes=2, or leave it out for all"),
    ("nodes=02", "'02' is not a number of nodes: write nodes=2, or leave it out for all"),
    ("nodes=10000", "'10000' is not a number of nodes: write nodes=2, or leave it out for all"),
    ("nodes=all", "'all' is not a number of nodes: write nodes=2, or leave it out for all"),
    ("nodes=2-3", "'2-3' is not a number of nodes: write nodes=2, or leave it out for all"),
    ("require=some", "unknown require 'some': write require=all or require=any"),
    ("require=alll", "unknown require 'alll': did you mean require=all?"),
    ("cluster=none,network=pasta", "unknown key 'network': choose among cluster, nodes, require, uplink, version"),
    ("clutser=none", "unknown key 'clutser': did you mean cluster=none?"),
    ("Cluster=none", "unknown key 'Cluster': did you mean cluster=none?"),
    ("versoin=", "unknown key 'versoin': did you mean version=?"),
    ("clutser={0.__class__}%s", "unknown key 'clutser': did you mean cluster={0.__class__}%s?"),
    ("=none", "'=none' has no key: choose among cluster, nodes, require, uplink, version"),
    ("=", "'=' has no key: choose among cluster, nodes, require, uplink, version"),
    ("cluster", "cluster has no value: write cluster=kind or cluster=none"),
    ("cluster=", "cluster has no value: write cluster=kind or cluster=none"),
    ("uplink=", "uplink has no value: write uplink=pasta or uplink=slirp4netns or uplink=kernel or uplink=none"),
    ("version=,cluster=none", f"version has no value: {EXAMPLES}"),
    ("cluster=nnone", "unknown cluster 'nnone': did you mean cluster=none?"),
    ("cluster=k3s", "unknown cluster 'k3s': write cluster=kind or cluster=none"),
    ("cluster=none;uplink=pasta", "unknown cluster 'none;uplink=pasta': write cluster=kind or cluster=none"),
    ("cluster=none=none", "unknown cluster 'none=none': did you mean cluster=none?"),
    ("cluster=none,uplink=kernal", "unknown uplink 'kernal': did you mean uplink=kernel?"),
    ("cluster=none,uplink=Pasta", "unknown uplink 'Pasta': did you mean uplink=pasta?"),
    ("cluster=none,uplink=slirp", "unknown uplink 'slirp': did you mean uplink=slirp4netns?"),
    ("version=v1.36", "'v1.36' is not a version of Kubernetes: did you mean version=1.36?"),
    ("version=latest", f"'latest' is not a version of Kubernetes: {EXAMPLES}"),
    ("version=1", f"'1' is not a version of Kubernetes: {EXAMPLES}"),
    ("version=1.036", f"'1.036' is not a version of Kubernetes: {EXAMPLES}"),
    ("version=1.36.3.1", f"'1.36.3.1' is not a version of Kubernetes: {EXAMPLES}"),
    ("version=1.36/../..", f"'1.36/../..' is not a version of Kubernetes: {EXAMPLES}"),
    ("cluster=none,version=1.36", "version chooses a Kubernetes and cluster=none wants none: keep one of them"),
    ("cluster=none,cluster=none", "cluster is given twice: keep one of them"),
    ("cluster=none,uplink=pasta,uplink=slirp4netns", "uplink is given twice: keep one of them"),
    ("cluster=none,", "there is a comma with nothing beside it: remove it"),
    (",cluster=none", "there is a comma with nothing beside it: remove it"),
    (",", "there is a comma with nothing beside it: remove it"),
    ("cluster=none, uplink=pasta", f"character 14 is a space: {LIKE}"),
    ("cluster=none\n", f"character 13 is not printable ASCII: {LIKE}"),
    ("\tcluster=none", f"character 1 is not printable ASCII: {LIKE}"),
    ("cluster=\x1b[2Jnone", f"character 9 is not printable ASCII: {LIKE}"),
    ("clüster=none", f"character 3 is not printable ASCII: {LIKE}"),
    ("cl\udcfcster=none", f"character 3 is not printable ASCII: {LIKE}"),
    ("clus\0ter=none", f"character 5 is not printable ASCII: {LIKE}"),
    ("x" * 1025, "it is 1025 bytes long: 1024 are allowed"),
    ("x" * 1024, f"'{'x' * 40}...' {NO_PAIR}"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wish"), GOOD)
def test_what_is_accepted(text: str, wish: Spec) -> None:
    assert parse(text) == wish


@pytest.mark.parametrize(("text", "line"), BAD, ids=lambda value: ascii(value[:30]))
def test_what_is_refused(text: str, line: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse(text)
    assert str(refusal.value) == f"--k8s: {line}"
    assert len(str(refusal.value).splitlines()) == 1
    assert refusal.value.remedy


def test_the_table_is_as_long_as_promised() -> None:
    assert len({text for text, _ in BAD}) == len(BAD) >= 25


@pytest.mark.parametrize(("_text", "wish"), GOOD)
def test_it_survives_a_file(_text: str, wish: Spec) -> None:
    assert typed_json.decode(Spec, wish.as_dict()) == wish
