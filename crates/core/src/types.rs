//! Column types, spelled as Delta spells them: `string`, `decimal(10,2)`, `struct<a: string, b: long>` and so on.

use std::fmt;
use std::str::FromStr;

/// The type of a column or of a part of one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DataType {
    /// UTF-8 text.
    String,
    /// 64-bit signed integer.
    Long,
    /// 32-bit signed integer.
    Integer,
    /// 16-bit signed integer.
    Short,
    /// 8-bit signed integer.
    Byte,
    /// 64-bit IEEE float.
    Double,
    /// 32-bit IEEE float.
    Float,
    /// True or false.
    Boolean,
    /// Calendar date.
    Date,
    /// Instant in UTC with microseconds.
    Timestamp,
    /// Bytes.
    Binary,
    /// Exact decimal number, `1 <= precision <= 38`, `0 <= scale <= precision`.
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// Named fields in order; at least one.
    Struct(Vec<StructField>),
    /// Elements of one type; elements may be null.
    Array(Box<DataType>),
    /// Keys of a simple type (never null) to values, which may be null.
    Map(Box<DataType>, Box<DataType>),
}

/// A field of a [`DataType::Struct`]; always nullable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StructField {
    /// The field's name.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
}

/// Why a type's text was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeParseError(pub String);

impl fmt::Display for TypeParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TypeParseError {}

impl DataType {
    /// False for structs, arrays and maps.
    #[must_use]
    pub const fn is_primitive(&self) -> bool {
        !matches!(self, Self::Struct(_) | Self::Array(_) | Self::Map(..))
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String => f.write_str("string"),
            Self::Long => f.write_str("long"),
            Self::Integer => f.write_str("integer"),
            Self::Short => f.write_str("short"),
            Self::Byte => f.write_str("byte"),
            Self::Double => f.write_str("double"),
            Self::Float => f.write_str("float"),
            Self::Boolean => f.write_str("boolean"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Binary => f.write_str("binary"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Struct(fields) => {
                f.write_str("struct<")?;
                for (i, field) in fields.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{}: {}", field.name, field.data_type)?;
                }
                f.write_str(">")
            }
            Self::Array(element) => write!(f, "array<{element}>"),
            Self::Map(key, value) => write!(f, "map<{key}, {value}>"),
        }
    }
}

impl FromStr for DataType {
    type Err = TypeParseError;

    fn from_str(text: &str) -> Result<Self, TypeParseError> {
        let mut parser = Parser { text, at: 0 };
        let data_type = parser.data_type(0)?;
        parser.skip_space();
        if parser.at == text.len() { Ok(data_type) } else { Err(parser.error("the end of the type")) }
    }
}

const MAX_TYPE_DEPTH: usize = 32;

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn data_type(&mut self, depth: usize) -> Result<DataType, TypeParseError> {
        if depth > MAX_TYPE_DEPTH {
            return Err(TypeParseError(format!("types may be nested {MAX_TYPE_DEPTH} deep, no more")));
        }
        let name = self.word();
        Ok(match name.to_ascii_lowercase().as_str() {
            "string" => DataType::String,
            "long" | "bigint" => DataType::Long,
            "integer" | "int" => DataType::Integer,
            "short" | "smallint" => DataType::Short,
            "byte" | "tinyint" => DataType::Byte,
            "double" => DataType::Double,
            "float" => DataType::Float,
            "boolean" => DataType::Boolean,
            "date" => DataType::Date,
            "timestamp" => DataType::Timestamp,
            "binary" => DataType::Binary,
            "decimal" => self.decimal()?,
            "struct" => self.structure(depth)?,
            "array" => {
                self.expect('<')?;
                let element = self.data_type(depth + 1)?;
                self.expect('>')?;
                DataType::Array(Box::new(element))
            }
            "map" => {
                self.expect('<')?;
                let key = self.data_type(depth + 1)?;
                if !key.is_primitive() {
                    return Err(TypeParseError(format!("a map's key must be a simple type, not {key}")));
                }
                self.expect(',')?;
                let value = self.data_type(depth + 1)?;
                self.expect('>')?;
                DataType::Map(Box::new(key), Box::new(value))
            }
            "" => return Err(self.error("a type")),
            _ => {
                return Err(TypeParseError(format!(
                    "{name:?} is not a type; the types are string, long, integer, short, byte, double, float, boolean, date, \
                     timestamp, binary, decimal(p,s), struct<name: type, ...>, array<type>, map<type, type>"
                )));
            }
        })
    }

    fn decimal(&mut self) -> Result<DataType, TypeParseError> {
        self.expect('(')?;
        let precision = self.number()?;
        self.expect(',')?;
        let scale = self.number()?;
        self.expect(')')?;
        if !(1..=38).contains(&precision) || scale > precision {
            return Err(TypeParseError(format!(
                "decimal({precision},{scale}) cannot be: precision goes from 1 to 38, scale from 0 to the precision"
            )));
        }
        Ok(DataType::Decimal { precision, scale })
    }

    fn structure(&mut self, depth: usize) -> Result<DataType, TypeParseError> {
        self.expect('<')?;
        let mut fields: Vec<StructField> = Vec::new();
        loop {
            let name = self.word().to_owned();
            if name.is_empty() {
                return Err(self.error("the name of a field"));
            }
            if fields.iter().any(|f| f.name.to_lowercase() == name.to_lowercase()) {
                return Err(TypeParseError(format!("a struct has two fields named {name:?} (case does not tell names apart)")));
            }
            self.expect(':')?;
            let data_type = self.data_type(depth + 1)?;
            fields.push(StructField { name, data_type });
            self.skip_space();
            if self.text[self.at..].starts_with(',') {
                self.at += 1;
            } else {
                self.expect('>')?;
                return Ok(DataType::Struct(fields));
            }
        }
    }

    fn word(&mut self) -> &str {
        self.skip_space();
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| "<>(),:".contains(c) || c.is_whitespace()).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn number(&mut self) -> Result<u8, TypeParseError> {
        let word = self.word().to_owned();
        word.parse().map_err(|_| self.error("a number below 256"))
    }

    fn expect(&mut self, wanted: char) -> Result<(), TypeParseError> {
        self.skip_space();
        if self.text[self.at..].starts_with(wanted) {
            self.at += wanted.len_utf8();
            Ok(())
        } else {
            Err(self.error(&format!("{wanted:?}")))
        }
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn error(&self, wanted: &str) -> TypeParseError {
        TypeParseError(format!("in the type {:?}, at character {}: expected {wanted}", self.text, self.at + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_the_contract_parses_and_prints_the_same() {
        for text in [
            "string",
            "long",
            "integer",
            "double",
            "boolean",
            "date",
            "timestamp",
            "binary",
            "decimal(10,2)",
            "struct<a: string, b: long>",
            "array<string>",
            "map<string, long>",
            "array<struct<a: map<string, array<decimal(38,0)>>, b: date>>",
        ] {
            assert_eq!(text.parse::<DataType>().map(|t| t.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn bad_types_say_what_was_expected() {
        for (text, part) in [
            ("strin", "not a type"),
            ("decimal(39,0)", "precision"),
            ("decimal(10)", "','"),
            ("array<string", "'>'"),
            ("map<array<string>, long>", "simple type"),
            ("struct<a string>", "':'"),
            ("struct<a: string, A: long>", "two fields"),
            ("long long", "the end"),
            ("", "a type"),
        ] {
            let error = text.parse::<DataType>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
