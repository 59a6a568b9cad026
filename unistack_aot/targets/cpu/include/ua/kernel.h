// Everything a generated translation unit needs. Not here: anything defined; see the headers below.
#pragma once

#include <cstdint>

#include <ua/attention.h>
#include <ua/contract.h>
#include <ua/conv.h>
#include <ua/half.h>
#include <ua/index.h>
#include <ua/math.h>
#include <ua/pool.h>
#include <ua/tile.h>
#include <ua/vec.h>
