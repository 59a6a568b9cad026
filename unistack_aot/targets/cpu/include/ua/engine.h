// The definitions that a library needs once: loop nests, streams, transforms and threads.
// A library with products of pairs asks for their tiles: UA_PRODUCTS_OF_BF16, UA_PRODUCTS_OF_I16.
// Not here: what kernels include (kernel.h).
#pragma once

#include <ua/attention_stream.h>
#include <ua/contract_nest.h>
#include <ua/pool_threads.h>
#include <ua/winograd_transform.h>
#if defined(UA_PRODUCTS_OF_BF16)
#include <ua/tile_bf16.h>
#endif
#if defined(UA_PRODUCTS_OF_I16)
#include <ua/tile_i16.h>
#endif
