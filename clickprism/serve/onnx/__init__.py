"""Rankers as ONNX graphs."""
