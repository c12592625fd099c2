#!/bin/bash
torchrun x.py --bf16 --=1
torchrun y.py --=2 ---=3
