#!/usr/bin/env python3
"""Cuts the demo's excerpt out of the whole trace: excerpt.py < mooncake_synthetic.jsonl > excerpt.jsonl

Takes the run of REQUESTS consecutive requests whose prefixes hit most, among those that use at most
MAX_BLOCKS different blocks (they decide how much disk the demo needs). Lines are kept as they are.
"""
import json
import sys

REQUESTS = 400
MAX_BLOCKS = 6400


def hits(requests):
    """Blocks found by prefix lookups in an empty store, and the different blocks."""
    stored, found = set(), 0
    for ids in requests:
        for number in ids:
            if number not in stored:
                break
            found += 1
        stored.update(ids)
    return found, len(stored)


def main():
    lines = sys.stdin.readlines()
    requests = [json.loads(line)["hash_ids"] for line in lines]
    best = None
    for start in range(len(requests) - REQUESTS + 1):
        run = requests[start : start + REQUESTS]
        found, blocks = hits(run)
        rate = found / sum(map(len, run))
        if blocks <= MAX_BLOCKS and (best is None or rate > best[0]):
            best = (rate, start, found, blocks)
    if best is None:
        sys.exit(f"no run of {REQUESTS} requests uses at most {MAX_BLOCKS} different blocks")
    rate, start, found, blocks = best
    sys.stdout.writelines(lines[start : start + REQUESTS])
    print(
        f"requests {start + 1} to {start + REQUESTS}: {blocks} different blocks, "
        f"{found} hits, hit rate {100 * rate:.1f} %",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
