#include "daemon/config/symbol_text.h"

#include <algorithm>
#include <string_view>
#include <variant>

#include "daemon/config/error_text.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {
namespace {

constexpr std::string_view kSymbolHint = "`nm -D LIBRARY` lists the symbols a library exports";
constexpr std::string_view kDemangledHint =
    "write the name alone, as `nm -DC LIBRARY` prints it before its parameters: "
    "\"torch::nn::LinearImpl::forward\"; every overload counts";
constexpr std::string_view kUsdtHint =
    "a static probe is \"provider:name\", as `readelf -n FILE` lists them; a C++ name has \"::\"";

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool has_space(std::string_view text) { return std::ranges::any_of(text, is_space); }

// The name without the parentheses that belong to a C++ name.
std::string remove_known_parentheses(std::string name) {
  for (const std::string_view part : {"operator()", "(anonymous namespace)"}) {
    for (size_t at = name.find(part); at != name.npos; at = name.find(part)) {
      name.replace(at, part.size(), "");
    }
  }
  return name;
}

// What is wrong with a symbol of this form, and the way out. Empty message: nothing.
struct SymbolFault {
  std::string_view message;
  std::string_view hint;
};

SymbolFault find_demangled_fault(const std::string& symbol) {
  if (remove_known_parentheses(symbol).find_first_of("()") != symbol.npos)
    return {"parameter lists are not part of a C++ name", kDemangledHint};
  if (is_space(symbol.front()) || is_space(symbol.back()))
    return {"must be a C++ name without spaces around it", kDemangledHint};
  if (symbol.starts_with("::") || symbol.ends_with("::"))
    return {"must be a C++ name with something on both sides of each \"::\"", kDemangledHint};
  return {};
}

SymbolFault find_usdt_fault(const std::string& symbol) {
  if (has_space(symbol)) return {"must be a static probe without spaces", kUsdtHint};
  const size_t colon = symbol.find(':');
  if (symbol.find(':', colon + 1) != symbol.npos)
    return {"must contain one colon, between provider and name", kUsdtHint};
  if (colon == 0 || colon + 1 == symbol.size())
    return {"must have a provider and a name", kUsdtHint};
  return {};
}

SymbolFault find_form_fault(const std::string& symbol) {
  constexpr std::string_view kEveryFunctionHint =
      "begin or end it with letters that the functions share: \"cudnn*\"";
  if (symbol.find_first_not_of("*: ") == symbol.npos)
    return {"would match every function", kEveryFunctionHint};
  switch (find_symbol_form(symbol)) {
    case SymbolForm::kDemangled:
      return find_demangled_fault(symbol);
    case SymbolForm::kUsdt:
      return find_usdt_fault(symbol);
    case SymbolForm::kExact:
    case SymbolForm::kWildcard:
      break;
  }
  if (has_space(symbol)) return {"must be a symbol without spaces", kSymbolHint};
  return {};
}

}  // namespace

SymbolForm find_symbol_form(std::string_view symbol) {
  if (symbol.find("::") != symbol.npos) return SymbolForm::kDemangled;
  if (symbol.find(':') != symbol.npos) return SymbolForm::kUsdt;
  if (symbol.find('*') != symbol.npos) return SymbolForm::kWildcard;
  return SymbolForm::kExact;
}

std::optional<std::string> read_symbol(const JsonNode& node, const FaultPlace& place) {
  const auto* symbol = std::get_if<std::string>(&node.value);
  if (!symbol) {
    place.report("must be a symbol, is " + describe_node(node), kSymbolHint);
  } else if (symbol->empty()) {
    place.report("must name a symbol, is empty", kSymbolHint);
  } else if (symbol->size() > kSymbolMaxBytes) {
    place.report("must be at most " + std::to_string(kSymbolMaxBytes) + " bytes long", kSymbolHint);
  } else if (has_control_character(*symbol)) {
    place.report("contains a control character: " + quote_for_message(*symbol), kSymbolHint);
  } else if (const SymbolFault fault = find_form_fault(*symbol); !fault.message.empty()) {
    place.report(std::string(fault.message) + ": " + quote_for_message(*symbol), fault.hint);
  } else {
    return *symbol;
  }
  return std::nullopt;
}

}  // namespace gpuperf
