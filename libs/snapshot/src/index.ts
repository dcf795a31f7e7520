/** Placeholder door, filled by the first commit of the library. */ export {};
