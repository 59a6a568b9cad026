// Everything a generated translation unit needs. Not here: what a library defines once (engine.h).
#pragma once

#include <cstdint>

#include <ua/attention.h>
#include <ua/contract.h>
#include <ua/contract_pairs.h>
#include <ua/conv.h>
#include <ua/half.h>
#include <ua/index.h>
#include <ua/lanes.h>
#include <ua/math.h>
#include <ua/pool.h>
#include <ua/vec.h>
#include <ua/winograd.h>
