#pragma once

#include <string>
#include <string_view>

namespace gpuperf {

// Whether both are the same but for the case of ASCII letters.
bool is_same_token(std::string_view a, std::string_view b);

// Without blanks and tabs at both ends.
std::string_view trim_blanks(std::string_view text);

// %41 -> A, what is no such code as it is. `plus_is_blank`: as in queries.
std::string decode_percent(std::string_view text, bool plus_is_blank);

}  // namespace gpuperf
