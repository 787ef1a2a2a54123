#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace gpuperf {

// What somebody who wrote `name` most likely meant: few letters apart, or a longer or shorter form.
std::optional<std::string_view> find_nearest_name(std::string_view name,
                                                  std::span<const std::string_view> known);

// The same, a letter or two apart at most, one where `name` is shorter than eight.
std::optional<std::string_view> find_misspelt_name(std::string_view name,
                                                   std::span<const std::string_view> known);

}  // namespace gpuperf
