#pragma once

#include <span>
#include <string_view>

namespace gpuperf {

// One file of the page, compressed and compiled in.
struct PageAsset {
  std::string_view path;  // below /ui/
  std::string_view media_type;
  std::string_view gzip_bytes;
};

// The files of daemon/web/assets, and those of speedscope below speedscope/ where it was there when
// the daemon was built.
std::span<const PageAsset> list_page_assets();

}  // namespace gpuperf
