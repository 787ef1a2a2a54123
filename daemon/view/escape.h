#pragma once

// Text of strangers (names of kernels, processes, files) in our documents: nothing in it is markup.

#include <string>
#include <string_view>

namespace gpuperf {

// For the text and the attributes of XML and HTML. What neither may hold, control characters and
// bytes that are no UTF-8, is U+FFFD.
std::string escape_markup(std::string_view text);

// A JSON string with its quotes. It may stand in a script of HTML and in CDATA, too: it holds no
// '<', '>', '&' nor line separators.
std::string to_json_string(std::string_view text);

// 1,234.567 with `decimals` of `value / 10^decimals`.
std::string format_grouped(uint64_t value, int decimals);

}  // namespace gpuperf
