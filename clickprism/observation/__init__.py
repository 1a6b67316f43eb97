"""What is seen where: position curves and click models, estimated from logs."""
