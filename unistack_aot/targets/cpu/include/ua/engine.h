// The definitions that a library needs once: loop nests, streams, transforms and threads.
// Not here: what kernels include (kernel.h).
#pragma once

#include <ua/attention_stream.h>
#if defined(__AVX512BF16__) || defined(UA_TILES_IN_SOFTWARE)
#include <ua/contract_bf16_nest.h>
#endif
#include <ua/contract_nest.h>
#include <ua/pool_threads.h>
#include <ua/winograd_transform.h>
