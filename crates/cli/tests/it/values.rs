//! Values that other programs lose.
