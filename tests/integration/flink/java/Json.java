import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** As much JSON as a line of expected content needs. */
class Json {
    static String of(Object value) {
        StringBuilder text = new StringBuilder();
        write(value, text);
        return text.toString();
    }

    static List<Object> listOf(Object... values) {
        return new ArrayList<>(Arrays.asList(values));
    }

    private static void write(Object value, StringBuilder text) {
        if (value instanceof Map) {
            String separator = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                text.append(separator);
                quote(entry.getKey().toString(), text);
                text.append(':');
                write(entry.getValue(), text);
                separator = ",";
            }
            text.append(separator.equals("{") ? "{}" : "}");
        } else if (value instanceof List) {
            String separator = "[";
            for (Object item : (List<?>) value) {
                text.append(separator);
                write(item, text);
                separator = ",";
            }
            text.append(separator.equals("[") ? "[]" : "]");
        } else if (value instanceof String || value instanceof Character) {
            quote(value.toString(), text);
        } else {
            text.append(value);
        }
    }

    private static void quote(String value, StringBuilder text) {
        text.append('"');
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c) && !pairs(value)) {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }

    private static boolean pairs(String value) {
        return value.codePoints().noneMatch(c -> c >= 0xD800 && c < 0xE000);
    }
}
