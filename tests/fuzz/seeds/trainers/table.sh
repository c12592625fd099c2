#!/bin/bash
torchrun x.py --system 1
system:
  bf16: true
