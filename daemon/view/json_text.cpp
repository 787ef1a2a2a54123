#include "daemon/view/json_text.h"

#include "daemon/model/display_text.h"

namespace gpuperf {

std::string to_json_text(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char letter : to_valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += letter;
    }
  }
  out += '"';
  return out;
}

}  // namespace gpuperf
