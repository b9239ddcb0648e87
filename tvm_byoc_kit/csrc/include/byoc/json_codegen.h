// From a partitioned Relax function (a region) to TVM's JSON graph; the form is described in
// graph.h.
//
// A vendor's codegen is a few lines on top of this:
//
//   ffi::Array<ffi::Module> Compile(ffi::Array<ffi::ObjectRef> functions,
//                                   ffi::Map<ffi::String, ffi::Any> options,
//                                   ffi::Map<ffi::ObjectRef, ffi::String> constant_names) {
//     ffi::Array<ffi::Module> modules;
//     for (const ffi::ObjectRef& function : functions) {
//       byoc::RegionGraph region = byoc::SerializeRegion(function, options, constant_names);
//       modules.push_back(MakeRuntime(region.symbol, region.json, region.constants));
//     }
//     return modules;
//   }
#pragma once

#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "byoc/graph.h"
#include "byoc/reflect.h"

namespace byoc {

/*! \brief What a JSON runtime module is made from. */
struct RegionGraph {
  std::string symbol;                 // the region's global symbol
  std::string json;                   // see graph.h
  ffi::Array<ffi::String> constants;  // names, in the order that __init_<symbol> gets them
};

namespace detail {

inline bool IsConstant(const ffi::ObjectRef& expr) {
  return IsAnyOf(expr, "ir.GenericConst", "relax.expr.Constant");
}
inline bool IsTuple(const ffi::ObjectRef& expr) {
  return IsAnyOf(expr, "ir.Tuple", "relax.expr.Tuple");
}
inline bool IsTupleGetItem(const ffi::ObjectRef& expr) {
  return IsAnyOf(expr, "ir.TupleGetItem", "relax.expr.TupleGetItem");
}
inline bool IsVar(const ffi::ObjectRef& expr) {
  return IsAnyOf(expr, "ir.Var", "relax.expr.Var", "relax.expr.DataflowVar");
}
inline bool IsCall(const ffi::ObjectRef& expr) {
  return IsAnyOf(expr, "ir.Call", "relax.expr.Call");
}
inline bool IsTupleType(const ffi::ObjectRef& type) {
  return IsAnyOf(type, "ir.TupleType", "relax.TupleType");
}
inline bool IsImmediate(const ffi::ObjectRef& expr) {
  return IsAnyOf(expr, "ir.IntImm", "ir.FloatImm", "ir.StringImm");
}

/*! \brief Calls `visit(variable, value)` for each binding, in order. */
template <typename Visit>
void ForEachBinding(const ffi::ObjectRef& function, const std::string& where, Visit visit) {
  auto body = Field<ffi::ObjectRef>(function, "body");
  if (!IsA(body, "relax.expr.SeqExpr")) {
    TVM_FFI_THROW(ValueError) << where << ": expected a SeqExpr as body, found "
                              << body->GetTypeKey();
  }
  for (const ffi::ObjectRef& block : Field<Refs>(body, "blocks")) {
    for (const ffi::ObjectRef& binding : Field<Refs>(block, "bindings")) {
      if (!IsA(binding, "relax.expr.VarBinding")) {
        TVM_FFI_THROW(ValueError) << where << ": cannot serialize a " << binding->GetTypeKey();
      }
      visit(Field<ffi::ObjectRef>(binding, "var"), Field<ffi::ObjectRef>(binding, "value"));
    }
  }
}

/*! \brief A value as the list of tensors that it consists of, tuples flattened. */
using Values = std::vector<ValueRef>;

/*!
 * \brief The tensors of a tuple, or of one field of a tuple; `read` gives those of its members.
 * \throws ValueError for any other expression.
 */
template <typename Read>
Values ReadTuple(const ffi::ObjectRef& expr, const std::string& where, Read read) {
  if (IsTupleGetItem(expr)) {
    return {read(Field<ffi::ObjectRef>(expr, "tuple_value")).at(Field<int64_t>(expr, "index"))};
  }
  if (!IsTuple(expr)) {
    TVM_FFI_THROW(ValueError) << where << ": cannot serialize a " << expr->GetTypeKey();
  }
  Values out;
  for (const ffi::ObjectRef& field : Field<Refs>(expr, "fields")) {
    for (const ValueRef& value : read(field)) out.push_back(value);
  }
  return out;
}

inline json::Array RefToJson(const ValueRef& ref) { return json::Array{ref.id, ref.output}; }

inline json::Array EntryToJson(const ValueRef& ref) {
  return json::Array{ref.id, ref.output, static_cast<int64_t>(0)};  // id, output, version
}

inline void Set(json::Object* object, const char* key, ffi::Any value) {
  object->Set(ffi::String(key), std::move(value));
}

inline json::Array ShapeToJson(const Shape& shape) {
  return json::Array(shape.begin(), shape.end());
}

/*! \brief `shape` and `dtype` of a node or inner op. */
inline void SetTensors(json::Object* object, const std::vector<TensorInfo>& tensors) {
  json::Array shapes, dtypes;
  for (const TensorInfo& tensor : tensors) {
    shapes.push_back(ShapeToJson(tensor.shape));
    dtypes.push_back(ffi::DLDataTypeToString(tensor.dtype));
  }
  Set(object, "shape", shapes);
  Set(object, "dtype", dtypes);
}

/*! \brief Dimensions of a ShapeExpr, or of a variable whose type holds them; -1 when symbolic. */
inline Shape ReadShape(const ffi::ObjectRef& shape, const std::string& where) {
  ffi::ObjectRef holder = IsVar(shape) ? Field<ffi::ObjectRef>(shape, "ty") : shape;
  ffi::Any values = Field(holder, "values");
  if (values == nullptr) TVM_FFI_THROW(ValueError) << where << ": the rank must be known";
  Shape out;
  for (const ffi::Any& dim : values.cast<ffi::Array<ffi::Any>>()) {
    auto expr = dim.as<ffi::ObjectRef>();
    if (!expr.has_value()) {
      out.push_back(dim.cast<int64_t>());
    } else {
      out.push_back(IsA(*expr, "ir.IntImm") ? Field<int64_t>(*expr, "value") : -1);
    }
  }
  return out;
}

inline TensorInfo ReadTensor(const ffi::ObjectRef& type, const std::string& where) {
  if (!IsA(type, "relax.TensorType")) {
    TVM_FFI_THROW(ValueError) << where << ": expected a tensor, found a " << type->GetTypeKey();
  }
  ffi::Any shape = Field(type, "shape");
  ffi::Any dtype = Field(type, "dtype");
  if (shape == nullptr || dtype == nullptr) {
    TVM_FFI_THROW(ValueError) << where << ": shape and dtype must be known; annotate them, for "
                              << "instance with relax.transform.Normalize or a match_cast";
  }
  if (auto prim = dtype.as<ffi::ObjectRef>()) dtype = Field(*prim, "dtype");
  return {ReadShape(shape.cast<ffi::ObjectRef>(), where), dtype.cast<DLDataType>()};
}

/*! \brief The tensor, or the fields of the tuple, that `expr` is. */
inline std::vector<TensorInfo> TensorsOf(const ffi::ObjectRef& expr, const std::string& where) {
  auto type = Field<ffi::ObjectRef>(expr, "ty");
  if (!IsTupleType(type)) return {ReadTensor(type, where)};
  std::vector<TensorInfo> out;
  for (const ffi::ObjectRef& field : Field<Refs>(type, "fields")) {
    out.push_back(ReadTensor(field, where));
  }
  return out;
}

/*! \brief An operator attribute as JSON: numbers, strings and arrays; dtypes and None as text. */
inline ffi::Any AttrToJson(const ffi::Any& value, const std::string& where) {
  switch (value.type_index()) {
    case ffi::TypeIndex::kTVMFFINone:
      return ffi::String("");
    case ffi::TypeIndex::kTVMFFIBool:
      return static_cast<int64_t>(value.cast<bool>());
    case ffi::TypeIndex::kTVMFFIInt:
    case ffi::TypeIndex::kTVMFFIFloat:
      return value;
    case ffi::TypeIndex::kTVMFFIDataType: {
      DLDataType dtype = value.cast<DLDataType>();
      bool is_void = dtype.code == kDLOpaqueHandle && dtype.bits == 0 && dtype.lanes == 0;
      return is_void ? ffi::String("") : ffi::DLDataTypeToString(dtype);
    }
    default:
      break;
  }
  if (auto text = value.as<ffi::String>()) return *text;
  if (auto items = value.as<ffi::Array<ffi::Any>>()) {
    json::Array out;
    for (const ffi::Any& item : *items) out.push_back(AttrToJson(item, where));
    return out;
  }
  if (auto expr = value.as<ffi::ObjectRef>(); expr.has_value()) {
    if (IsImmediate(*expr)) return Field(*expr, "value");
    if (IsA(*expr, "ir.PrimType")) return AttrToJson(Field(*expr, "dtype"), where);
  }
  TVM_FFI_THROW(ValueError) << where << " is a " << value.GetTypeKey()
                            << ", which the JSON graph cannot hold";
  TVM_FFI_UNREACHABLE();
}

inline json::Object OpAttrsToJson(const ffi::ObjectRef& call, const std::string& where) {
  json::Object out;
  ffi::Any attrs = Field(call, "attrs");
  if (attrs == nullptr) return out;
  auto object = attrs.cast<ffi::ObjectRef>();
  ffi::reflection::ForEachFieldInfo(
      TVMFFIGetTypeInfo(object->type_index()), [&](const TVMFFIFieldInfo* field) {
        std::string name(View(field->name));
        ffi::Any value = ffi::reflection::FieldGetter(field)(object.get());
        Set(&out, name.c_str(), AttrToJson(value, where + ": attribute `" + name + "`"));
      });
  return out;
}

/*!
 * \brief The ops of one composite function.
 *
 * Operands are taken from the body, in the order of their first use there: so constants bound
 * inside the composite are kept, and data comes before weights before bias.
 */
class CompositeSerializer {
 public:
  explicit CompositeSerializer(std::string where) : where_(std::move(where)) {}

  /*!
   * \param function The composite.
   * \param arguments Node entries of each argument of the call.
   * \param constant Gives the node entry of a constant bound in the body.
   */
  template <typename Constant>
  void Run(const ffi::ObjectRef& function, const std::vector<Values>& arguments,
           Constant constant) {
    Refs params = Field<Refs>(function, "params");
    std::unordered_map<const ffi::Object*, Values> entries;
    for (size_t i = 0; i < params.size(); ++i) entries[params[i].get()] = arguments.at(i);
    // First the operands, since the inner ops are numbered after them.
    VisitOperands(
        function,
        [&](const ffi::ObjectRef& leaf) {
          if (values_.count(leaf.get()) != 0) return;
          Values outer = IsConstant(leaf) ? Values{constant(leaf)} : entries.at(leaf.get());
          for (const ValueRef& entry : outer) {
            values_[leaf.get()].push_back({static_cast<int64_t>(inputs_.size()), 0});
            inputs_.push_back(entry);
          }
        },
        entries);
    ForEachBinding(function, where_, [&](const ffi::ObjectRef& var, const ffi::ObjectRef& value) {
      keep_.push_back(var);
      values_[var.get()] = IsCall(value) ? AddOp(value) : Read(value);
    });
    auto body = Field<ffi::ObjectRef>(function, "body");
    results_ = Read(Field<ffi::ObjectRef>(body, "body"));
  }

  const Values& inputs() const { return inputs_; }
  const Values& results() const { return results_; }
  const json::Array& ops() const { return ops_; }

 private:
  /*! \brief Calls `visit` with each parameter and constant that the body reads, in order. */
  template <typename Visit>
  void VisitOperands(const ffi::ObjectRef& function, Visit visit,
                     const std::unordered_map<const ffi::Object*, Values>& params) {
    auto leaf = [&](const ffi::ObjectRef& expr, const auto& self) -> void {
      if (IsConstant(expr) || params.count(expr.get()) != 0) {
        visit(expr);
      } else if (IsCall(expr)) {
        for (const ffi::ObjectRef& arg : Field<Refs>(expr, "args")) self(arg, self);
      } else if (IsTuple(expr)) {
        for (const ffi::ObjectRef& field : Field<Refs>(expr, "fields")) self(field, self);
      } else if (IsTupleGetItem(expr)) {
        self(Field<ffi::ObjectRef>(expr, "tuple_value"), self);
      }
    };
    ForEachBinding(function, where_,
                   [&](const ffi::ObjectRef&, const ffi::ObjectRef& value) { leaf(value, leaf); });
    auto body = Field<ffi::ObjectRef>(function, "body");
    leaf(Field<ffi::ObjectRef>(body, "body"), leaf);
  }

  Values AddOp(const ffi::ObjectRef& call) {
    auto op = Field<ffi::ObjectRef>(call, "op");
    if (!IsA(op, "ir.Op")) {
      TVM_FFI_THROW(ValueError) << where_ << ": can only hold calls of operators, found a call of "
                                << op->GetTypeKey();
    }
    std::string name = Field<ffi::String>(op, "name");
    std::string where = where_ + ", " + name;
    json::Array args;
    for (const ffi::ObjectRef& arg : Field<Refs>(call, "args"))
      args.push_back(ArgToJson(arg, where));
    json::Object out;
    Set(&out, "op", ffi::String(name));
    Set(&out, "args", args);
    Set(&out, "attrs", OpAttrsToJson(call, where));
    std::vector<TensorInfo> tensors = TensorsOf(call, where);
    SetTensors(&out, tensors);
    int64_t id = static_cast<int64_t>(inputs_.size() + ops_.size());
    ops_.push_back(out);
    Values values;
    for (size_t i = 0; i < tensors.size(); ++i) values.push_back({id, static_cast<int64_t>(i)});
    return values;
  }

  ffi::Any ArgToJson(const ffi::ObjectRef& arg, const std::string& where) {
    json::Object out;
    if (IsA(arg, "relax.expr.ShapeExpr")) {
      Set(&out, "shape", ShapeToJson(ReadShape(arg, where)));
    } else if (IsImmediate(arg)) {
      Set(&out, "value", Field(arg, "value"));
    } else if (IsAnyOf(arg, "relax.expr.PrimValue", "relax.expr.StringImm",
                       "relax.expr.DataTypeImm")) {
      Set(&out, "value", AttrToJson(Field(arg, "value"), where));
    } else if (IsTupleType(Field<ffi::ObjectRef>(arg, "ty"))) {
      json::Array fields;
      for (const ValueRef& field : Read(arg)) fields.push_back(RefToJson(field));
      Set(&out, "tuple", fields);
    } else {
      return RefToJson(Read(arg).at(0));
    }
    return out;
  }

  Values Read(const ffi::ObjectRef& expr) {
    auto it = values_.find(expr.get());
    if (it != values_.end()) return it->second;
    return ReadTuple(expr, where_, [this](const ffi::ObjectRef& member) { return Read(member); });
  }

  std::string where_;
  std::unordered_map<const ffi::Object*, Values> values_;
  std::vector<ffi::ObjectRef> keep_;  // variables whose addresses are keys of values_
  Values inputs_, results_;
  json::Array ops_;
};

/*! \brief A whole region: its parameters, constants and calls of composites. */
class RegionSerializer {
 public:
  RegionSerializer(std::string symbol, const ffi::Map<ffi::ObjectRef, ffi::String>& names)
      : symbol_(std::move(symbol)), where_("region `" + symbol_ + "`") {
    for (const auto& item : names) constant_names_[item.first.get()] = item.second;
  }

  RegionGraph Run(const ffi::ObjectRef& function, const ffi::Map<ffi::String, ffi::Any>& options) {
    for (const ffi::ObjectRef& param : Field<Refs>(function, "params")) AddParam(param);
    ForEachBinding(function, where_, [&](const ffi::ObjectRef& var, const ffi::ObjectRef& value) {
      keep_.push_back(var);
      if (IsA(value, "relax.expr.Function")) {
        composites_[var.get()] = value;
      } else {
        values_[var.get()] = Read(value);
      }
    });
    auto body = Field<ffi::ObjectRef>(function, "body");
    json::Array heads;
    for (const ValueRef& head : Read(Field<ffi::ObjectRef>(body, "body"))) {
      heads.push_back(EntryToJson(head));
    }
    json::Object graph;
    Set(&graph, "nodes", nodes_);
    Set(&graph, "arg_nodes", arg_nodes_);
    Set(&graph, "heads", heads);
    Set(&graph, "node_row_ptr", row_ptr_);
    Set(&graph, "options", options);
    return {symbol_, std::string(json::Stringify(graph)), constants_};
  }

 private:
  void AddParam(const ffi::ObjectRef& param) {
    std::string name = Field<ffi::String>(param, "name");
    std::string where = where_ + ", parameter `" + name + "`";
    auto type = Field<ffi::ObjectRef>(param, "ty");
    json::Object attrs;
    std::vector<TensorInfo> tensors;
    if (IsA(type, "relax.ShapeType")) {
      int64_t rank = static_cast<int64_t>(ReadShape(param, where).size());
      tensors.push_back({{rank}, DLDataType{kDLInt, 64, 1}});
      Set(&attrs, "is_shape", static_cast<int64_t>(1));
    } else {
      tensors.push_back(ReadTensor(type, where));
    }
    values_[param.get()] = AddNode("input", name, attrs, tensors, {});
  }

  Values AddNode(const char* op, const std::string& name, json::Object attrs,
                 const std::vector<TensorInfo>& tensors, const Values& inputs) {
    int64_t id = static_cast<int64_t>(nodes_.size());
    int64_t outputs = static_cast<int64_t>(tensors.size());
    SetTensors(&attrs, tensors);
    json::Object node;
    Set(&node, "op", ffi::String(op));
    Set(&node, "name", ffi::String(name));
    if (!inputs.empty()) {
      json::Array entries;
      for (const ValueRef& input : inputs) entries.push_back(EntryToJson(input));
      Set(&node, "inputs", entries);
      Set(&attrs, "num_inputs", static_cast<int64_t>(inputs.size()));
      Set(&attrs, "num_outputs", outputs);
    } else {
      arg_nodes_.push_back(id);
    }
    Set(&node, "attrs", attrs);
    nodes_.push_back(node);
    row_ptr_.push_back(row_ptr_.back().cast<int64_t>() + outputs);
    Values out;
    for (int64_t i = 0; i < outputs; ++i) out.push_back({id, i});
    return out;
  }

  ValueRef AddConstant(const ffi::ObjectRef& constant) {
    auto known = values_.find(constant.get());
    if (known != values_.end()) return known->second.at(0);
    auto name = constant_names_.find(constant.get());
    if (name == constant_names_.end()) {
      TVM_FFI_THROW(ValueError) << where_ << ": RunCodegen gave no name for a constant";
    }
    constants_.push_back(name->second);
    Values entries = AddNode("const", name->second, {}, TensorsOf(constant, where_), {});
    values_[constant.get()] = entries;
    return entries.at(0);
  }

  Values Read(const ffi::ObjectRef& expr) {
    auto it = values_.find(expr.get());
    if (it != values_.end()) return it->second;
    if (IsConstant(expr)) return {AddConstant(expr)};
    if (IsCall(expr)) return AddKernel(expr);
    return ReadTuple(expr, where_, [this](const ffi::ObjectRef& member) { return Read(member); });
  }

  Values AddKernel(const ffi::ObjectRef& call) {
    auto callee = Field<ffi::ObjectRef>(call, "op");
    auto composite = composites_.find(callee.get());
    if (composite == composites_.end()) {
      TVM_FFI_THROW(ValueError) << where_ << ": expected a call of a composite function, found a "
                                << "call of " << callee->GetTypeKey();
    }
    auto name = FunctionAttr(composite->second, "Composite");
    if (!name.has_value()) {
      TVM_FFI_THROW(ValueError) << where_ << ": an inner function has no `Composite` attribute; "
                                << "partition with FuseOpsByPattern";
    }
    std::vector<Values> arguments;
    for (const ffi::ObjectRef& arg : Field<Refs>(call, "args")) arguments.push_back(Read(arg));
    CompositeSerializer body(where_ + ", composite `" + *name + "`");
    body.Run(composite->second, arguments,
             [this](const ffi::ObjectRef& constant) { return AddConstant(constant); });
    json::Array results;
    for (const ValueRef& result : body.results()) results.push_back(RefToJson(result));
    json::Object attrs;
    Set(&attrs, "ops", body.ops());
    Set(&attrs, "results", results);
    return AddNode("kernel", *name, attrs, TensorsOf(call, where_), body.inputs());
  }

  std::string symbol_, where_;
  std::unordered_map<const ffi::Object*, ffi::String> constant_names_;
  std::unordered_map<const ffi::Object*, Values> values_;
  std::unordered_map<const ffi::Object*, ffi::ObjectRef> composites_;
  std::vector<ffi::ObjectRef> keep_;  // variables whose addresses are keys of the maps above
  json::Array nodes_, arg_nodes_, row_ptr_{static_cast<int64_t>(0)};
  ffi::Array<ffi::String> constants_;
};

}  // namespace detail

/*!
 * \brief The JSON graph of a region.
 * \param function A Relax function with the attributes `Codegen` and `global_symbol`.
 * \param options What RunCodegen was given for this backend; carried in the graph.
 * \param constant_names The names that RunCodegen gave to the constants.
 * \throws ValueError naming the region, the composite and the construct it cannot hold.
 */
inline RegionGraph SerializeRegion(const ffi::ObjectRef& function,
                                   const ffi::Map<ffi::String, ffi::Any>& options,
                                   const ffi::Map<ffi::ObjectRef, ffi::String>& constant_names) {
  auto symbol = FunctionAttr(function, "global_symbol");
  if (!symbol.has_value()) {
    TVM_FFI_THROW(ValueError) << "a region has no `global_symbol`; compile it with RunCodegen";
  }
  return detail::RegionSerializer(*symbol, constant_names).Run(function, options);
}

}  // namespace byoc
