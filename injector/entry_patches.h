#pragma once

// Puts the hooks in the place of the driver's functions, in all addresses that lead to them:
// pointer_patch.h, and what cuGetProcAddress answers from then on.
//
// Thread: within cuInit, before any launch; in a process that is attached to, the injector's, while
// others launch: each replacement is one store, and both functions work at any time.

namespace gpuperf::injector {

// Lists what to replace and fills gpuperf_entries. `driver`: from dlopen. False: this driver has no
// entry that can be hooked.
bool list_entries(void* driver);
// Replaces what was listed.
void replace_entries(void* driver);
// Puts the driver's functions back wherever ours are found. Copies that others have made since lead
// to ours for ever, which then lead on to the driver.
void restore_entries(void* driver);

}  // namespace gpuperf::injector
