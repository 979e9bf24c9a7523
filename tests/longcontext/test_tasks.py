"""The tasks: targets by brute force from the tokens alone, distributions, and the same bytes."""

import hashlib
from collections import Counter

import numpy as np
import pytest
import torch

from adasparse.longcontext import TASKS, find_task
from adasparse.longcontext.tasks import (
    BOS,
    EOS,
    IGNORED,
    PAD,
    SEP,
    FlipFlop,
    LocalCount,
    MultiQueryRecall,
    Sort,
)
from adasparse.longcontext.tasks.recall import pools
from adasparse.longcontext.tasks.streams import mix, random_order, random_subset, words

#: SHA-256 of tokens and labels of ``batch(7, 5, (20, 40))``: data must never change.
DIGESTS = {
    "sort": "0cca1537bc74e51fbf0a7b550d316044fbd1608b877e16941ab7f82862c66db3",
    "copy": "6c9d95abd0a59f8dfb39c7c3f2321b05b3e07f93b4ad99eea3ecdc821224e498",
    "reverse": "0cfab173eaeb7c2923a98a921aa3690b0b620cba2ba067d7397cba55ea1a4a49",
    "mqmtar": "2c1dec950cf357f070fb6f8d770cb070c82667d0acdda662054d00eade786e30",
    "local-count": "e0caf5d42a325cadcaa303872d50655ff30025390e05848f761b45742e7558db",
    "2back": "fd8bf574bfa1e31c494911d16d8c8f71e6993d8f7ed8be68bc041d286541affe",
    "flip-flop": "ddfd673ed5cf65f0621d8fee9321e672abde4153a4a5c13b1c0aa0e5aa2fcc3a",
}

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def rows(batch):
    """Lists of tokens, labels and relevant places of each example, without padding."""
    for row in range(len(batch.input_ids)):
        kept = batch.attention_mask[row].bool()
        start = int(kept.nonzero()[0])
        relevant = [x - start if x >= 0 else x for x in batch.relevant[row][kept].tolist()]
        yield batch.input_ids[row][kept].tolist(), batch.labels[row][kept].tolist(), relevant


def expected_labels(task, tokens):
    """What is to be predicted at each place, by plain loops over names of tokens."""
    names = [task.tokens[i] for i in tokens]
    assert names[0] == "<bos>" and names[-1] == "<eos>"
    if task.name in ("local-count", "2back"):
        source = names[1:-1]
        wanted = [None, None]
        for i in range(len(source)):
            if task.name == "2back":
                wanted.append(source[i - 2] if i >= 2 else None)
                continue
            count = 0
            while count < i and source[i - count - 1] == source[i]:
                count += 1
            wanted.append(str(count))
        return wanted
    middle = names.index("<sep>")
    source = names[1:middle]
    target = {
        "copy": lambda: source,
        "reverse": lambda: source[::-1],
        "sort": lambda: [str(x) for x in sorted(int(x) for x in source)],
        "mqmtar": lambda: recall(source),
        "flip-flop": lambda: flip_flop(source),
    }[task.name]()
    assert names[middle + 1 : -1] == target
    return [None] * (middle + 1) + target + ["<eos>"]


def recall(source):
    context, queries = source[:-8], source[-8:]
    values = {}
    for i, name in enumerate(context):
        if name == ":":
            assert context[i + 3] == "<space>"
            key = tuple(context[i - 2 : i])
            assert key not in values
            values[key] = context[i + 1 : i + 3]
    assert len(values) == int(0.8 * len(context) / 6) == context.count(":")
    assert context.count("<space>") == len(context) - 5 * len(values)
    return [x for i in range(0, 8, 2) for x in values[tuple(queries[i : i + 2])]]


def flip_flop(source):
    assert source[0] == "write" and source[-1] == "read" and len(source) % 2
    for command, bit in zip(source[:-1:2], source[1::2], strict=True):
        assert command in ("write", "ignore", "read") and bit in ("0", "1")
        if command == "write":
            state = bit
        elif command == "read":
            assert bit == state
    return [state]


@every_task
@pytest.mark.parametrize("length", ["shortest", 33, (20, 70), 300])
def test_targets_by_brute_force(task, length):
    length = task.shortest if length == "shortest" else length
    batch = task.batch(3, 16, length)
    seen = []
    for tokens, labels, relevant in rows(batch):
        wanted = expected_labels(task, tokens)
        found = [None if x == IGNORED else task.tokens[x] for x in labels]
        assert found == wanted
        for i, (name, place) in enumerate(zip(wanted, relevant, strict=True)):
            if name in (None, "<eos>"):
                assert place == -1
            elif task.name == "local-count":
                assert i - 1 - place == int(name)
            else:
                assert task.tokens[tokens[place]] == name and place < i
        seen.append(tokens)
    assert len({tuple(x) for x in seen}) > 1
    source = [x for x in seen[0] if x not in (BOS, EOS, SEP)]
    assert max(batch.input_ids.flatten().tolist()) < task.vocab_size
    assert min(source) > SEP


@every_task
def test_sources_have_the_length_asked_for(task):
    for length in (33, 64):
        tokens = task.batch(0, 2, length).input_ids
        longer = {"mqmtar": 8, "flip-flop": -1 - length % 2}.get(task.name, 0)
        extra = {"mqmtar": 8, "flip-flop": 1, "local-count": -1, "2back": -1}
        target = extra.get(task.name, length)
        assert tokens.shape[1] == 1 + length + longer + 1 + target + 1


@every_task
def test_examples_do_not_depend_on_the_batch(task):
    whole = list(rows(task.batch(5, 9, (20, 40))))
    assert list(rows(task.batch(5, 4, (20, 40), first=3))) == whole[3:7]
    left = task.batch(5, 9, (20, 40), padding_side="left")
    assert list(rows(left)) == whole
    assert (left.attention_mask[:, -1] == 1).all() and (left.attention_mask[:, 0] == 0).any()
    for batch in (left, task.batch(5, 9, (20, 40))):
        is_padding = batch.attention_mask == 0
        assert (batch.input_ids[is_padding] == PAD).all()
        assert (batch.labels[is_padding] == IGNORED).all()
        assert (batch.relevant[is_padding] == -1).all()
    assert list(rows(task.batch(6, 9, (20, 40)))) != whole


@every_task
def test_the_same_seed_gives_the_same_bytes(task):
    batch = task.batch(7, 5, (20, 40))
    data = torch.stack((batch.input_ids, batch.labels)).numpy().astype("<i8").tobytes()
    assert hashlib.sha256(data).hexdigest() == DIGESTS[task.name]


def test_words_are_those_of_splitmix64():
    # The published sequence that begins with the state 1234567.
    states = words(*(1234567 + i * 0x9E3779B97F4A7C15 for i in range(1, 4)))
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert mix(states).tolist() == expected


def test_orders_and_subsets_are_permutations():
    keys = mix(words(*range(50)))
    for n in (1, 2, 7, 64, 65):
        order = random_order(np.stack([mix(words(*range(i, i + n))) for i in range(50)]))
        assert (np.sort(order, 1) == np.arange(n)).all()
    subsets = random_subset(keys, 0, 49, side=7)
    assert (np.sort(subsets, 1) == np.arange(49)).all()
    assert len({tuple(x) for x in subsets.tolist()}) == 50
    assert np.array_equal(random_subset(keys, 0, 5, side=7), subsets[:, :5])
    with pytest.raises(ValueError, match="at most 49, all there are; got 50"):
        random_subset(keys, 0, 50, side=7)


def test_lengths_are_even_between_the_ends():
    lengths = TASKS["copy"].batch(0, 6600, (32, 64)).attention_mask.sum(1)
    sources = (lengths - 3) // 2
    assert_even(Counter(sources.tolist()), range(32, 65))


def assert_even(counts, values):
    """Chi-squared: no further from even than one in a million draws of even data."""
    values = list(values)
    assert set(counts) <= set(values)
    expected = sum(counts.values()) / len(values)
    statistic = sum((counts[x] - expected) ** 2 / expected for x in values)
    freedom = len(values) - 1
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5 + 12


@pytest.mark.parametrize("name", ["sort", "copy", "reverse", "2back"])
def test_symbols_are_even_at_every_place(name):
    task = TASKS[name]
    tokens = task.batch(11, 4000, 6).input_ids[:, 1:7]
    symbols = range(4, task.vocab_size)
    for column in tokens.T:
        assert_even(Counter(column.tolist()), symbols)
    pairs = Counter((tokens[:, 1] * 100 + tokens[:, 4]).tolist())
    assert_even(pairs, [a * 100 + b for a in symbols for b in symbols])


def test_runs_are_even_and_change_their_symbol():
    tokens = LocalCount().batch(1, 3000, 60).input_ids[:, 1:-1].numpy()
    changes = tokens[:, 1:] != tokens[:, :-1]
    first = np.where(changes.any(1), changes.argmax(1) + 1, 60)
    assert_even(Counter(first.tolist()), range(2, 49))
    assert_even(Counter(tokens[:, 0].tolist()), range(4, 20))
    rows_with = np.flatnonzero(first < 60)
    steps = (tokens[rows_with, first[rows_with]] - tokens[rows_with, 0]) % 16
    assert_even(Counter(steps.tolist()), range(1, 16))


def test_commands_have_their_shares():
    task = FlipFlop()
    tokens = task.batch(1, 400, 402).input_ids
    commands = tokens[:, 3:400:2]
    shares = [(commands == i).double().mean().item() for i in (4, 5, 6)]
    assert shares == pytest.approx([0.1, 0.8, 0.1], abs=0.005)
    bits = tokens[:, 4:401:2][commands == 5]
    assert (bits == 8).double().mean().item() == pytest.approx(0.5, abs=0.01)
    only = FlipFlop(write_share=0.25, read_share=0.0).batch(1, 400, 402).input_ids[:, 3:400:2]
    assert (only == 4).double().mean().item() == pytest.approx(0.25, abs=0.01)
    assert not (only == 6).any()


def test_pools_are_of_different_keys_and_values():
    for pool in pools():
        assert pool.shape == (10000, 2)
        assert len({tuple(x) for x in pool.tolist()}) == 10000
        assert_even(Counter(pool.flatten().tolist()), range(4, 260))
    assert not np.array_equal(*pools())


def test_recall_draws_from_the_whole_pool_without_repeating():
    keys, values = ({tuple(x): i for i, x in enumerate(pool.tolist())} for pool in pools())
    tokens = MultiQueryRecall().batch(2, 2500, 30).input_ids.numpy()
    found = {"key": [], "value": []}
    starts = Counter()
    for row in tokens:
        colons = np.flatnonzero(row == 261)
        assert len(colons) == 4
        starts[int(colons[0])] += 1
        mine = [keys[tuple(row[i - 2 : i])] for i in colons]
        theirs = [values[tuple(row[i + 1 : i + 3])] for i in colons]
        assert len(set(mine)) == len(set(theirs)) == 4
        found["key"] += mine
        found["value"] += theirs
    for indices in found.values():
        assert_even(Counter(i // 100 for i in indices), range(100))
        assert_even(Counter(i % 100 for i in indices), range(100))
        first, second = indices[0::4], indices[1::4]
        pairs = Counter(a // 1000 * 10 + b // 1000 for a, b in zip(first, second, strict=True))
        assert_even(pairs, range(100))
    # The first pair comes after s of six spaces in C(9 - s, 3) of C(10, 4) arrangements.
    for spaces, ways in enumerate([84, 56, 35, 20, 10, 4, 1]):
        assert starts[3 + spaces] / 2500 == pytest.approx(ways / 210, abs=0.04)


def test_queries_are_even_over_the_pairs():
    batch = MultiQueryRecall().batch(4, 3000, 30)
    first = batch.relevant[batch.relevant >= 0].reshape(3000, 8)
    colons = (batch.input_ids == 261).nonzero()[:, 1].reshape(3000, 4)
    for i in range(0, 8, 2):
        which = (colons < first[:, i : i + 1]).sum(1) - 1
        assert_even(Counter(which.tolist()), range(4))


def test_look_alikes_share_their_letters():
    """Models trained on four pairs of 256 letters matched one letter, and failed at 64 pairs."""
    plain, some, every = (
        MultiQueryRecall(look_alikes=share).batch(2, 1000, 30).input_ids.numpy()
        for share in (0.0, 0.25, 1.0)
    )
    first = Counter()
    for row in every:
        colons = np.flatnonzero(row == 261)
        keys = [tuple(row[i - 2 : i]) for i in colons]
        values = [tuple(row[i + 1 : i + 3]) for i in colons]
        assert len(set(keys)) == len(set(values)) == 4
        assert len({letter for word in keys + values for letter in word}) <= 3
        answers = dict(zip(keys, values, strict=True))
        assert [answers[tuple(row[i : i + 2])] for i in range(31, 39, 2)] == [
            tuple(row[i : i + 2]) for i in range(40, 48, 2)
        ]
        first[keys[0][0]] += 1
    assert_even(first, range(4, 260))
    # Each example is drawn as it would be alone, with pairs in the same places.
    is_plain, is_alike = ((some == x).all(1) for x in (plain, every))
    assert (is_plain ^ is_alike).all()
    assert is_alike.mean() == pytest.approx(0.25, abs=0.05)
    places = np.flatnonzero(plain[0] == 261)
    assert np.array_equal(places, np.flatnonzero(every[0] == 261))


def test_a_long_recall_uses_most_of_the_pool():
    tokens = MultiQueryRecall().batch(0, 1, 65536).input_ids[0]
    assert len(tokens) == 65536 + 19
    colons = (tokens == 261).nonzero().flatten()
    assert len(colons) == 8738
    pairs = {tuple(tokens[i - 2 : i].tolist()) for i in colons}
    assert len(pairs) == 8738
    assert (MultiQueryRecall().batch(0, 1, 80000).input_ids == 261).sum() == 10000


def test_errors_quote_what_was_given():
    task = Sort()
    with pytest.raises(ValueError, match=r"at least 1 for sort.*got 0"):
        task.batch(0, 1, 0)
    with pytest.raises(ValueError, match=r"at least 8 for mqmtar.*got 7"):
        TASKS["mqmtar"].batch(0, 1, 7)
    with pytest.raises(ValueError, match=r"got \(9, 4\)"):
        task.batch(0, 1, (9, 4))
    with pytest.raises(ValueError, match="got 0 and 0"):
        task.batch(0, 0, 4)
    with pytest.raises(ValueError, match="got 'both'"):
        task.batch(0, 1, 4, padding_side="both")
    with pytest.raises(ValueError, match=r"'flip-flop'.*got 'parity'"):
        find_task("parity")
    with pytest.raises(ValueError, match=r"together at most 1; got 0\.9 and 0\.2"):
        FlipFlop(write_share=0.9, read_share=0.2)
    with pytest.raises(ValueError, match="got 0, 4 and 256"):
        MultiQueryRecall(share=0)
    with pytest.raises(ValueError, match=r"between 0 and 1; got 1\.5"):
        MultiQueryRecall(look_alikes=1.5)
    for name in ("flip-flop-8", "sort-1", "sort-", "parity-8"):
        with pytest.raises(ValueError, match=f"such as \"sort-8\"; got '{name}'"):
            find_task(name)


def test_a_number_after_the_name_is_the_size_of_the_alphabet():
    assert find_task("sort-8") == Sort(num_symbols=8)
    task = find_task("mqmtar-16")
    assert task.vocab_size == 4 + 16 + 2
    for keys in pools(16):
        assert len({tuple(x) for x in keys.tolist()}) == 256
    # A context that would have room for 300 pairs has the 256 that there are.
    batch = task.batch(1, 2, 2250)
    colons = (batch.input_ids == 4 + 16 + 1).sum(1)
    assert colons.tolist() == [256, 256]
