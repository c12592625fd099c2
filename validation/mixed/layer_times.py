#!/usr/bin/env python3
"""Turns layer profiles of Sailor into the table that `parsim --profile FILE.csv` reads.

    layer_times.py rtx-3090=sailor_profile_RTX-3090.json titan-rtx=... > layer_times.csv

A profile maps micro-batch -> tensor-parallel degree -> layer -> [forward, backward, update] in
seconds (eth-easl/sailor, sailor/profiling). Layer 0 is the embedding, the last one the final norm,
head and loss; the blocks between them are alike, so their mean stands for each. Times include what
a tensor-parallel group exchanges.
"""
import json
import statistics
import sys

PRECISION = "fp32"  # as the profiles were taken: validate.py passes fp16=False

print("device,precision,samples,tp,layers,forward_s,backward_s")
for argument in sys.argv[1:]:
    device, path = argument.split("=", 1)
    with open(path) as file:
        profile = json.load(file)
    for samples in sorted(profile, key=int):
        for degree in sorted(profile[samples], key=int):
            layers = profile[samples][degree]
            times = [layers[str(i)] for i in range(len(layers))]
            for name, part in (("before", times[:1]), ("block", times[1:-1]), ("after", times[-1:])):
                forward, backward = (statistics.mean(time[i] for time in part) for i in (0, 1))
                print(f"{device},{PRECISION},{samples},{degree},{name},{forward:.7g},{backward:.7g}")
