#include "layouts.h"
