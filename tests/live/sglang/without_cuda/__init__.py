"""What SGLang needs to know of to run where there is no CUDA: it loads this package with its models (SGLANG_EXTERNAL_MODEL_PACKAGE)."""
