"""Tables of the packet filter: described as data, and installed as a whole or not at all."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, Final

from pyroute2.netlink import NETLINK_NETFILTER, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES, nfgen_msg
from pyroute2.netlink.nfnetlink import nftsocket as kernel

from moorage.common.errors import MoorageError
from moorage.linux.nft_expressions import ACCEPT, Rule, value

INET: Final = kernel.NFPROTO_INET
IPV4: Final = kernel.NFPROTO_IPV4
IPV6: Final = kernel.NFPROTO_IPV6
NETDEV: Final = kernel.NFPROTO_NETDEV
HOOKS: Final = {"ingress": 0, "prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4}
BATCH_BEGIN: Final = 0x10
BATCH_END: Final = 0x11
# The multicast group for changes of the packet filter.
CHANGES: Final = 7
# While somebody changes rules, a listing may be incomplete: so many listings have to agree that something is missing.
LOOKS: Final = 3


@dataclass(frozen=True)
class Chain:
    """Rules at a hook of the kernel. A packet that no rule decides passes."""

    name: str
    hook: str
    priority: int
    rules: Sequence[Rule]
    kind: str = "filter"
    # Only for the hook `ingress`: the link whose frames the chain sees.
    link: str = ""


@dataclass(frozen=True)
class Table:
    family: int
    name: str
    chains: Sequence[Chain] = ()
    # Sets of addresses, which rules use by name.
    sets: Sequence[tuple[str, Sequence[IPv4Address]]] = ()


def install(*tables: Table) -> None:
    """Install these tables at once, in place of all others with their names."""
    _commit([message for table in tables for message in (*_removal(table), *_creation(table))])
    # See LOOKS.
    if not any(intact(*tables) for _ in range(LOOKS)):
        raise MoorageError(f"the kernel did not take the rules of {' and '.join(table.name for table in tables)}")


def remove(*tables: Table) -> None:
    """Remove these tables, as far as they exist."""
    _commit([message for table in tables for message in _removal(table)])


def intact(*tables: Table) -> bool:
    """Whether each table has all of its chains, and each chain its number of rules."""
    return all(_found(table) == {chain.name: len(chain.rules) for chain in table.chains} for table in tables)


def names(family: int) -> list[str]:
    """The names of all tables of this family."""
    return [table.get_attr("NFTA_TABLE_NAME") for table in _dump(family, kernel.NFT_MSG_GETTABLE)]


class Changes:
    """Becomes readable once the packet filter of this network namespace has been changed by anybody."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, NETLINK_NETFILTER)
        self.socket.bind((0, 1 << (CHANGES - 1)))

    def fileno(self) -> int:
        return self.socket.fileno()

    def drain(self) -> bool:
        """Whether there were changes. Some of them may be lost, so the caller has to look at the rules anyway."""
        seen = False
        while True:
            try:
                self.socket.recv(1 << 16)
            except BlockingIOError:
                return seen
            except OSError as error:
                # There were more changes than fit into the socket.
                if error.errno != errno.ENOBUFS:
                    raise
            seen = True

    def close(self) -> None:
        self.socket.close()


def _removal(table: Table) -> Iterator[Any]:
    """Make the table, and remove it: only a table that exists can be removed."""
    name = ["NFTA_TABLE_NAME", table.name]
    yield _message(kernel.nft_table_msg, kernel.NFT_MSG_NEWTABLE, table.family, [name], NLM_F_CREATE)
    yield _message(kernel.nft_table_msg, kernel.NFT_MSG_DELTABLE, table.family, [name])


def _creation(table: Table) -> Iterator[Any]:
    yield _message(
        kernel.nft_table_msg, kernel.NFT_MSG_NEWTABLE, table.family, [["NFTA_TABLE_NAME", table.name]], NLM_F_CREATE
    )
    for number, (name, addresses) in enumerate(table.sets, 1):
        yield from _set(table, number, name, addresses)
    for chain in table.chains:
        yield _chain(table, chain)
        for rule in chain.rules:
            yield _message(
                kernel.nft_rule_msg,
                kernel.NFT_MSG_NEWRULE,
                table.family,
                [
                    ["NFTA_RULE_TABLE", table.name],
                    ["NFTA_RULE_CHAIN", chain.name],
                    ["NFTA_RULE_EXPRESSIONS", list(rule)],
                ],
                NLM_F_CREATE | NLM_F_APPEND,
            )


def _set(table: Table, number: int, name: str, addresses: Sequence[IPv4Address]) -> Iterator[Any]:
    yield _message(
        kernel.nft_set_msg,
        kernel.NFT_MSG_NEWSET,
        table.family,
        [
            ["NFTA_SET_TABLE", table.name],
            ["NFTA_SET_NAME", name],
            ["NFTA_SET_KEY_TYPE", kernel.DATA_TYPE_IPADDR],
            ["NFTA_SET_KEY_LEN", 4],
            ["NFTA_SET_ID", number],
        ],
        NLM_F_CREATE,
    )
    elements = [{"attrs": [["NFTA_SET_ELEM_KEY", value(address.packed)]]} for address in addresses]
    yield _message(
        kernel.nft_set_elem_list_msg,
        kernel.NFT_MSG_NEWSETELEM,
        table.family,
        [
            ["NFTA_SET_ELEM_LIST_TABLE", table.name],
            ["NFTA_SET_ELEM_LIST_SET", name],
            ["NFTA_SET_ELEM_LIST_ELEMENTS", elements],
        ],
        NLM_F_CREATE,
    )


def _chain(table: Table, chain: Chain) -> Any:  # noqa: ANN401
    hook: list[list[object]] = [["NFTA_HOOK_HOOKNUM", HOOKS[chain.hook]], ["NFTA_HOOK_PRIORITY", chain.priority]]
    if chain.link:
        hook.append(["NFTA_HOOK_DEV", chain.link])
    return _message(
        kernel.nft_chain_msg,
        kernel.NFT_MSG_NEWCHAIN,
        table.family,
        [
            ["NFTA_CHAIN_TABLE", table.name],
            ["NFTA_CHAIN_NAME", chain.name],
            ["NFTA_CHAIN_HOOK", {"attrs": hook}],
            ["NFTA_CHAIN_POLICY", ACCEPT],
            ["NFTA_CHAIN_TYPE", chain.kind],
        ],
        NLM_F_CREATE,
    )


def _message(form: Any, kind: int, family: int, attributes: list[Any], flags: int = 0) -> Any:  # noqa: ANN401
    message = form()
    message["attrs"] = attributes
    message["nfgen_family"] = family
    message["header"]["type"] = NFNL_SUBSYS_NFTABLES << 8 | kind
    message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK | flags
    return message


def _boundary(kind: int) -> Any:  # noqa: ANN401
    message = nfgen_msg()
    message["res_id"] = NFNL_SUBSYS_NFTABLES
    message["header"]["type"] = kind
    message["header"]["flags"] = NLM_F_REQUEST
    return message


def _commit(messages: list[Any]) -> None:
    with kernel.NFTSocket() as channel:
        channel.nlm_request_batch([_boundary(BATCH_BEGIN), *messages, _boundary(BATCH_END)])


def _found(table: Table) -> dict[str, int]:
    """The chains of the table, each with its number of rules."""
    chains = [
        chain.get_attr("NFTA_CHAIN_NAME")
        for chain in _dump(table.family, kernel.NFT_MSG_GETCHAIN)
        if chain.get_attr("NFTA_CHAIN_TABLE") == table.name and chain.get_attr("NFTA_CHAIN_HOOK")
    ]
    rules = Counter(
        rule.get_attr("NFTA_RULE_CHAIN")
        for rule in _dump(table.family, kernel.NFT_MSG_GETRULE, table.name)
        if rule.get_attr("NFTA_RULE_TABLE") == table.name
    )
    return {chain: rules[chain] for chain in chains}


def _dump(family: int, kind: int, table: str = "") -> list[Any]:
    message = kernel.nft_rule_msg() if table else nfgen_msg()
    if table:
        message["attrs"] = [["NFTA_RULE_TABLE", table]]
    with kernel.NFTSocket(nfgen_family=family) as channel:
        try:
            found: list[Any] = channel.request_get(message, kind)
        except NetlinkError as error:
            raise MoorageError(f"the packet filter cannot be read: {error}") from error
    return found
