"""Lowy & Razaviyayn (2021), arXiv:2102.04704: output perturbation (001)."""
