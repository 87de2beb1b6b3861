"""Routes through a graph: the routing rule of the network chooses among the shortest paths.

The rule is applied at each device to find the next link towards a stop, so no path is ever stored.

The target is the only stop. With dimension order, stops are also the NPUs at which one logical coordinate
after the other equals the target's, lowest dimension first. With `valiant`, a message to another group of a
dragonfly first goes to a third group, drawn for each message by a hash; its stops are that group and the
target's, numbered behind all places where messages end. Among links that are equally near to the stop,

- `shortest`, `dimension-order` and `valiant` take the one with the lowest number,
- `destination` takes the one whose number is the remainder of the target's number divided by their count
  (`d mod k`); a tier above uses the quotient,
- `ecmp` takes one by a hash of source, target, seed and device,
- `ecmp-ns3` takes one by the hash of ns-3's switches, seeded with the device's number. The hash numbers
  devices in the order in which a search from the target finds them, high numbers first (ns-3 orders its
  switches by their addresses in memory, which descend). Every message between two ranks is a flow with a
  source port of its own.

With `spread`, a message takes all of them at once, evenly. Trunks stand for parallel links, so often one is
left. Models that split messages do so (`spread`); the others take one link by the hash, with a probability in
proportion to its bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from et_sim.compiled.entry_points import entry
from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.machine.graph import Graph
from et_sim.network.route_tables import BY_TARGET, FAR, LOWEST, NONE, NS3, SPREAD, RouteTables
from et_sim.network.ways import FIRST_PORTS, NS3_SOURCE_PORT, NS3_TARGET_PORT

MASK = 0xFFFFFFFF
NS3_ADDRESS = 0x0B000001
MOST_PORTS = 0xFFFF


@works_on_tables
def next_stop(routes: RouteTables, at: int, target: int) -> int:
    """Return the first stop of a message at rank `at`."""
    if not routes.rule[0].stops or max(at, target) >= routes.rule[0].ranks:
        return target
    for row in range(len(routes.logical)):
        axis = routes.logical[row]
        here, there = at // axis.stride % axis.npus, target // axis.stride % axis.npus
        stop = at + (there - here) * axis.stride
        if here != there and stop < routes.rule[0].ranks:
            return stop
    return target


@works_on_tables
def stop_after(routes: RouteTables, device: int, stop: int, source: int, target: int, ports: int) -> int:
    """Return the next stop of a message at a device: its present stop, or the one after it if it is there."""
    if len(routes.group_of) > 0:
        if stop == source and source != target:
            return _detour(routes, source, target, ports)
        if routes.group_of[device] != stop:
            return stop
        last = routes.group_of[routes.device_of[target]]
        return target if stop == last else last  # straight to its group, not through a third one
    return next_stop(routes, stop, target) if routes.rank_of[device] == stop else stop


@works_on_tables
def _detour(routes: RouteTables, source: int, target: int, ports: int) -> int:
    """Return the group through which a message goes to another one; within a group, return the target."""
    rule = routes.rule[0]
    first, second = routes.group_of[routes.device_of[source]], routes.group_of[routes.device_of[target]]
    low, high = min(first, second), max(first, second)
    if low == high or rule.groups < 3:
        return target
    if low == NONE:
        return target
    drawn = murmur3(int(source), int(target), ports, int(rule.seed)) % (rule.groups - 2)
    drawn += rule.first_group
    if drawn >= low:
        drawn += 1
    return drawn + 1 if drawn >= high else drawn


@works_on_tables
def next_link(routes: RouteTables, at: int, stop: int, source: int, target: int, ports: int) -> int:
    """Return the link that a message between two ranks takes from the device `at` towards the rank `stop`."""
    if routes.rule[0].routes:
        link = _given(routes, at, routes.device_of[source], routes.device_of[target])
        if link != NONE:
            return link
    if routes.rule[0].choice == SPREAD:
        return _drawn_link(routes, at, stop, source, target)
    first, end = _last_links(routes, at, stop)
    if end > first:
        return routes.direct[first + _chosen(routes, at, source, target, ports, end - first)]
    nearest, count, lowest = 1 << 40, 0, NONE
    for row in range(routes.first_link[at], routes.first_link[at + 1]):
        hops = _hops(routes, routes.target[routes.links[row]], stop)
        if hops < nearest:
            nearest, count, lowest = hops, 1, row
        elif hops == nearest:
            count += 1
    wanted = _chosen(routes, at, source, target, ports, count)
    if len(routes.search_order) > 0:
        return routes.links[_in_search_order(routes, at, stop, nearest, wanted)]
    row = lowest
    while wanted > 0:
        row += 1
        if _hops(routes, routes.target[routes.links[row]], stop) == nearest:
            wanted -= 1
    return routes.links[row]


@works_on_tables
def _last_links(routes: RouteTables, at: int, stop: int) -> tuple[int, int]:
    """Return the bounds of the links to a stop, or to the only device from which it is reached, if there
    are any.

    Without them, all links have to be compared, of which the highest switches of large trees have thousands.
    """
    first, end = direct_links(routes, at, routes.device_of[stop])
    if end == first and len(routes.near) > 0 and routes.near[stop] != NONE:
        return direct_links(routes, at, routes.near[stop])
    return first, end


@works_on_tables
def direct_links(routes: RouteTables, at: int, goal: int) -> tuple[int, int]:
    """Return the bounds of the links from one device to another among those that
    leave it.
    """
    first = _first_direct(routes, at, goal)
    end = first
    while end < routes.first_direct[at + 1] and routes.target[routes.direct[end]] == goal:
        end += 1
    return first, end


@works_on_tables
def leads_on(routes: RouteTables, at: int, stop: int) -> bool:
    """Return whether any link leads from a device towards a stop."""
    if routes.first_link[at] < routes.first_link[at + 1]:
        return True
    first, end = direct_links(routes, at, routes.device_of[stop])
    return bool(end > first)


@works_on_tables
def equal_links(routes: RouteTables, at: int, stop: int, source: int, target: int) -> int:
    """List the links that are equally near to a stop, or that of an explicit route; return their number."""
    equal, count, nearest = routes.equal, 0, 1 << 40
    if routes.rule[0].routes:
        equal[0] = _given(routes, at, routes.device_of[source], routes.device_of[target])
        if equal[0] != NONE:
            return 1
    first, end = _last_links(routes, at, stop)
    for row in range(first, end):
        equal[row - first] = routes.direct[row]
    if end > first:
        return int(end - first)
    for row in range(routes.first_link[at], routes.first_link[at + 1]):
        hops = _hops(routes, routes.target[routes.links[row]], stop)
        if hops <= nearest:
            count = count if hops == nearest else 0
            nearest, equal[count] = hops, routes.links[row]
            count += 1
    return count


@works_on_tables
def _drawn_link(routes: RouteTables, at: int, stop: int, source: int, target: int) -> int:
    """Return one of the equally near links by the hash, in proportion to their bandwidths."""
    count = equal_links(routes, at, stop, source, target)
    if count > 1:
        hashed = murmur3(int(source), int(target), int(routes.rule[0].seed), int(at))
        least = most = routes.bytes_per_ns[routes.equal[0]]
        for row in range(1, count):
            least = min(least, routes.bytes_per_ns[routes.equal[row]])
            most = max(most, routes.bytes_per_ns[routes.equal[row]])
        if least == most:  # exact, whatever the bandwidth
            return routes.equal[hashed * count >> 32]
        sum_of_all = 0.0
        for row in range(count):
            sum_of_all += routes.bytes_per_ns[routes.equal[row]]
        left = sum_of_all * (hashed / (MASK + 1.0))
        for row in range(count - 1):
            left -= routes.bytes_per_ns[routes.equal[row]]
            if left < 0:
                return routes.equal[row]
    return routes.equal[count - 1]


@works_on_tables
def _in_search_order(routes: RouteTables, at: int, stop: int, nearest: int, before: int) -> int:
    """Return link number `before` in search order: by device as the search from the stop finds it."""
    goal = routes.goal_row[routes.first_goal[stop]]
    last_order, last = NONE, NONE
    for _ in range(before + 1):
        next_order, following = 1 << 40, NONE
        for row in range(routes.first_link[at], routes.first_link[at + 1]):
            there = routes.target[routes.links[row]]
            if _hops(routes, there, stop) == nearest:
                place = int(routes.search_order[goal, routes.column[there]])
                is_later = place > last_order or (place == last_order and row > last)
                if is_later and place < next_order:
                    next_order, following = place, row
        last_order, last = next_order, following
    return last


@works_on_tables
def _first_direct(routes: RouteTables, at: int, goal: int) -> int:
    """Return the position where links from one device to another begin or would begin."""
    low, high = routes.first_direct[at], routes.first_direct[at + 1]
    while low < high:
        middle = (low + high) >> 1
        if routes.target[routes.direct[middle]] < goal:
            low = middle + 1
        else:
            high = middle
    return low


@works_on_tables
def _given(routes: RouteTables, at: int, source: int, target: int) -> int:
    """Return the next link of an explicit route."""
    wanted = source * (len(routes.first_link) - 1) + target
    low, high = 0, len(routes.route_key)
    while low < high:
        middle = (low + high) >> 1
        if routes.route_key[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low == len(routes.route_key) or routes.route_key[low] != wanted:
        return NONE
    for row in range(routes.route_first[low], routes.route_first[low + 1]):
        if routes.source[routes.route_links[row]] == at:
            return routes.route_links[row]
    return NONE


@works_on_tables
def _hops(routes: RouteTables, at: int, stop: int) -> int:
    """Return the distance of a forwarding device from a stop, in links."""
    if routes.rule[0].has_grid:
        return _hops_of_grid(routes, routes.rank_of[at], stop)
    hops, column = 1 << 30, routes.column[at]
    for goal in range(routes.first_goal[stop], routes.first_goal[stop + 1]):
        there = int(routes.hops[routes.goal_row[goal], column])
        if there < FAR:
            hops = min(hops, there + routes.goal_extra[goal])
    return hops


@works_on_tables
def _hops_of_grid(routes: RouteTables, here: int, there: int) -> int:
    hops = 0
    for row in range(len(routes.axes)):
        axis = routes.axes[row]
        ahead = abs(there // axis.stride % axis.npus - here // axis.stride % axis.npus)
        hops += min(ahead, axis.npus - ahead) if axis.wraps else ahead
    return hops


@works_on_tables
def _chosen(routes: RouteTables, at: int, source: int, target: int, ports: int, count: int) -> int:
    """Return the number of the chosen link of `count` equal ones."""
    rule = routes.rule[0]
    if count == 1 or rule.choice == LOWEST:
        return 0
    if rule.choice == NS3:
        source_device, target_device = routes.device_of[source], routes.device_of[target]
        return murmur3(ns3_address(source_device), ns3_address(target_device), ports, int(at)) % count
    if rule.choice == BY_TARGET:
        return int(routes.place_of[target] // routes.choices_below[at] % count)
    return murmur3(int(source), int(target), int(rule.seed), int(at)) % count


@works_on_tables
def ports_of_flow(number: int) -> int:
    """Return source and target port of message `number` between two ranks, as one word."""
    return ((NS3_SOURCE_PORT + number) & MOST_PORTS) | (NS3_TARGET_PORT << 16)


@works_on_tables
def ports_back(ports: int) -> int:
    """Return the ports of acknowledgements."""
    return (ports >> 16) | ((ports & MOST_PORTS) << 16)


@works_on_tables
def ns3_address(device: int) -> int:
    """Return the address of a host in the reference: 11.0.0.1 and so on, by its number."""
    return NS3_ADDRESS + (int(device) // 256) * 65536 + (int(device) % 256) * 256


@works_on_tables
def murmur3(first: int, second: int, third: int, seed: int) -> int:
    """Return MurmurHash3 (32 bits, x86) of three words, the hash of the switches of ns-3's RoCE model."""
    state = mixed(mixed(mixed(seed & MASK, first), second), third)
    state ^= 12  # bytes
    state ^= state >> 16
    state = (state * 0x85EBCA6B) & MASK
    state ^= state >> 13
    state = (state * 0xC2B2AE35) & MASK
    return state ^ (state >> 16)


@works_on_tables
def mixed(state: int, word: int) -> int:
    """Return the state of the hash after another word."""
    word = ((word & MASK) * 0xCC9E2D51) & MASK
    word = ((word << 15) | (word >> 17)) & MASK
    word = (word * 0x1B873593) & MASK
    state ^= word
    state = ((state << 13) | (state >> 19)) & MASK
    return (state * 5 + 0xE6546B64) & MASK


@works_on_tables
def route_into(routes: RouteTables, source: int, target: int, links: Any) -> int:
    """Fill in the links of a message's path; return their number, or NONE if they are too many."""
    stop, count = source, 0
    device = routes.device_of[source]
    while device != routes.device_of[target]:
        stop = stop_after(routes, device, stop, source, target, FIRST_PORTS)
        link = next_link(routes, device, stop, source, target, FIRST_PORTS)
        if count == len(links):
            return NONE
        links[count] = link
        count += 1
        device = routes.target[link]
    return count


@entry(what="the routes", seconds=lambda _, sources, *__: len(sources) * 1e-3)
def routes_of(routes: RouteTables, sources: Any, targets: Any, counts: Any, links: Any) -> None:
    """Fill in the links of many paths, a row each."""
    for row in range(len(sources)):
        counts[row] = route_into(routes, sources[row], targets[row], links[row])


@entry(what="the routes", seconds=lambda _, sources, *__: len(sources) * 1e-4)
def distances_of(routes: RouteTables, sources: Any, targets: Any, hops: Any) -> None:
    """Fill in the number of links on the shortest path of each pair of ranks."""
    for row in range(len(sources)):
        hops[row] = _distance(routes, sources[row], targets[row])


@works_on_tables
def _distance(routes: RouteTables, source: int, target: int) -> int:
    at, goal = routes.device_of[source], routes.device_of[target]
    if at == goal:
        return 0
    if routes.column[at] != NONE:
        return _hops(routes, at, target)
    first = _first_direct(routes, at, goal)
    if first < routes.first_direct[at + 1] and routes.target[routes.direct[first]] == goal:
        return 1
    nearest = 1 << 40
    for row in range(routes.first_link[at], routes.first_link[at + 1]):
        nearest = min(nearest, _hops(routes, routes.target[routes.links[row]], target))
    return nearest + 1


def path_between(routes: RouteTables, source: int, target: int) -> list[int]:
    """Return the links of one path."""
    room = 64
    while True:
        counts, links = np.zeros(1, np.int64), np.zeros((1, room), np.int32)
        routes_of(routes, np.array([source]), np.array([target]), counts, links)
        if counts[0] != NONE:
            return [int(link) for link in links[0, : counts[0]]]
        room *= 8


def names_on(graph: Graph, links: list[int], names: Sequence[str] = ()) -> list[str]:
    """Return the devices on a path, by their own or other names."""
    names = names or graph.names
    if not links:
        return []
    return [names[graph.sources[links[0]]], *(names[graph.targets[link]] for link in links)]
