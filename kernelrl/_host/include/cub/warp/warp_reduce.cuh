#pragma once
#include "../block/block.h"
